// Your own worker program in one line: int main() { return penstock::worker_main(make_my_dataset); } Link
// penstock::worker, which needs neither CUDA nor a session.
#pragma once

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>
#include <penstock/error.hpp>
#include <penstock/export.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace penstock {

/// Makes this worker's dataset from the session's effective config; your own parameters are in
/// config.dataset.options. An exception ends the run with its message: the dataset as a whole is unusable.
using dataset_factory = std::function<std::unique_ptr<Dataset>(const config&)>;

/// An entry of [dataset.options] that your dataset requires. Throws error (errc::config) if it is missing;
/// the message lists the entries that exist.
[[nodiscard]] inline const std::string& option_of(const config& settings, std::string_view name) {
  const string_map& all = settings.dataset.options;
  if (const auto found = all.find(std::string(name)); found != all.end()) return found->second;
  std::string there;
  for (const auto& [key, value] : all) there += (there.empty() ? "; it has: " : ", ") + key;
  throw error({errc::config, "[dataset.options] has no '" + std::string(name) + "'" + (there.empty() ? "; it is empty" : there), 0});
}

/// Runs a worker process: serves the session that started it, and returns the exit code for main. Call it
/// from main, before any other thread exists. Started by hand, it loads samples in the current process
/// (`my-worker --config csv.toml --load 7`; `my-worker --help`), or, without such options, prints what it is and
/// returns 78. It reads these options from the process's command line; arguments before them are yours.
PENSTOCK_API int worker_main(const dataset_factory& make);

}  // namespace penstock
