// `run --dry-run`: shows what a config would load, without starting a process. Used by the run command.
#pragma once

#include <penstock/config.hpp>

#include <string>

namespace penstock::cli {

/// Prints the plan; returns the exit code. `file`: the config file, for the hint about custom datasets.
int dry_run(const config& settings, const std::string& file, bool json);

}  // namespace penstock::cli
