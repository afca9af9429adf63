// Gives commands the caller's environment, which differs from the environment of a pool's workers.
#pragma once

#include "runtime/config/load.hpp"

#include <penstock/config.hpp>

#include <string>
#include <vector>

namespace penstock::cli {

/// Prepares a pool whose jobs are commands. Removes from `settings` the defaults that hide GPUs and processor
/// cores from workers, because the workers run no code of ours. Returns the variables that commands need in
/// addition to the workers' environment (in the form of protocol::command_job). Settings made by the user,
/// according to `loaded`, stay. Pure except for `caller`, the environment.
[[nodiscard]] std::vector<std::string> give_callers_environment(const config_file::loaded_config& loaded,
                                                                const config_file::environment_list& caller,
                                                                config& settings);

}  // namespace penstock::cli
