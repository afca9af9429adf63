// A worker program of your own in one line: int main() { return penstock::worker_main(make_my_dataset); }
// Link penstock::worker; no CUDA and no session comes with it.
#pragma once

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>
#include <penstock/export.hpp>

#include <functional>
#include <memory>

namespace penstock {

/// Makes the dataset of this worker from the session's effective config; your own parameters are in
/// config.dataset.options. An exception ends the run with its message: the dataset as a whole is unusable.
using dataset_factory = std::function<std::unique_ptr<Dataset>(const config&)>;

/// The whole life of a worker process: talks to the session that started it, loads what it is told to, and
/// returns the exit code for main. Call it from main, before any other thread exists. Started by hand, it loads
/// samples in this process (`my-worker --config csv.toml --load 7`; `my-worker --help`), or explains itself and
/// returns 78. Such options are read from the process's command line; what stands before them is yours.
PENSTOCK_API int worker_main(const dataset_factory& make);

}  // namespace penstock
