// The environment of commands: the caller's, although workers of a pool have another one.
#pragma once

#include "runtime/config/load.hpp"

#include <penstock/config.hpp>

#include <string>
#include <vector>

namespace penstock::cli {

/// Prepares a pool whose jobs are commands: takes out of `settings` what hides GPUs and processor cores from workers by default,
/// since no code of ours runs there, and returns what the commands' environment has that the workers' lacks (as
/// protocol::command_job has it). `loaded` says what the user has set: that stays. Pure but for `caller`, the environment.
[[nodiscard]] std::vector<std::string> give_callers_environment(const config_file::loaded_config& loaded,
                                                                const config_file::environment_list& caller,
                                                                config& settings);

}  // namespace penstock::cli
