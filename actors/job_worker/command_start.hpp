// Starts the command of a job: finds its program, builds its environment and redirects its output.
#pragma once

#include "actors/job_worker/command_output.hpp"
#include "actors/job_worker/group_watchdog.hpp"
#include "actors/protocol/command_job.hpp"
#include "runtime/process/spawn.hpp"

#include <string>
#include <vector>

namespace penstock::job_worker {

/// The command in one line, for messages.
[[nodiscard]] std::string shown(const protocol::command_job& job);

/// `base` with the changes of a job: "NAME=value" sets a variable, "NAME" removes it.
[[nodiscard]] std::vector<std::string> changed_environment(std::vector<std::string> base,
                                                           const std::vector<std::string>& changes);

/// Starts the command in its own process group, and stores the pid of its leader in `group`. It inherits no
/// descriptors of ours but its outputs; its stdin is /dev/null. /bin/sh runs a file whose format the kernel
/// does not know, as shells and xargs do. Throws job_exception (type "command").
[[nodiscard]] process::child start_command(const protocol::command_job& job, captured_output& out,
                                           captured_output& err, group_watchdog::entry& group);

}  // namespace penstock::job_worker
