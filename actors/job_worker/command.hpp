// Runs ordinary programs as jobs: a function that executes a command and returns its exit status and output.
// Provided by `penstock-worker --commands`, called by `penstock map --command`.
#pragma once

#include <penstock/job.hpp>

namespace penstock::job_worker {

/// The argument is a protocol::command_job, the result a protocol::command_outcome. There is no shell, stdin
/// is /dev/null, and the command inherits none of penstock's descriptors.
///
/// The command leads its own process group, so `kill 0` reaches it and the processes that it started, but not
/// the worker. If the worker is killed, that group is killed, too (group_watchdog.hpp). A worker that
/// receives an abort (a timeout, a cancelled job) first also kills processes that have left the group.
///
/// If a signal ends the command, the worker kills the processes that the command started and dies of the same
/// signal: the death is blamed on the job, which is retried elsewhere. Processes that outlive a command that
/// has exited keep running, but their output is lost.
///
/// Adopts and reaps orphans: only for programs whose children are all commands.
///
/// Throws job_exception: type "command" if the program cannot be found or executed; type "memory" if it and
/// the processes that it started exceed the job's limit of private memory, after killing all of them.
void run_command(JobCall& call);

}  // namespace penstock::job_worker
