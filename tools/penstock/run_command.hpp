// `penstock run FILE`: an embedding program like any other, that hands batches to a sink and reports.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace penstock::cli {

/// Adds the verb; `chosen` receives what to do when it is the one that was given.
void add_run_command(CLI::App& app, std::function<int()>& chosen);

}  // namespace penstock::cli
