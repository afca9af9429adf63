// Starts the command of a job: finds its program, makes its environment, and leads its output away.
#pragma once

#include "actors/job_worker/command_output.hpp"
#include "actors/job_worker/group_watchdog.hpp"
#include "actors/protocol/command_job.hpp"
#include "runtime/process/spawn.hpp"

#include <string>
#include <vector>

namespace penstock::job_worker {

/// The command in one line, for people.
[[nodiscard]] std::string shown(const protocol::command_job& job);

/// `base` with the changes of a job: "NAME=value", or "NAME": without it.
[[nodiscard]] std::vector<std::string> changed_environment(std::vector<std::string> base,
                                                           const std::vector<std::string>& changes);

/// Starts it with no descriptor of ours but its outputs, with stdin from /dev/null, and in a process group of its own, which
/// `group` announces. A file without a format that the kernel knows is run by /bin/sh, as shells and xargs do it. Throws
/// job_exception (type "command").
[[nodiscard]] process::child start_command(const protocol::command_job& job, captured_output& out,
                                           captured_output& err, group_watchdog::entry& group);

}  // namespace penstock::job_worker
