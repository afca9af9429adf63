// Runs ordinary programs as jobs: a function that executes a command and returns its exit status and output.
// Served by `penstock-worker --commands`, called by `penstock map --command`.
#pragma once

#include <penstock/job.hpp>

namespace penstock::job_worker {

/// The argument is a protocol::command_job, the result a protocol::command_outcome. No shell; stdin is
/// /dev/null; penstock's descriptors are not inherited.
///
/// The command leads a process group of its own, so `kill 0` reaches it and what it started, but not the worker. Whatever
/// kills the worker also kills that group (group_watchdog.hpp). A worker that is told to abort (a timeout, a cancelled job)
/// first kills what has left the group, too.
///
/// If a signal ends the command, what it started is killed and the worker dies of the same signal: the job is blamed with
/// the death and retried elsewhere. Processes that outlive a command that has exited keep running, but their output is
/// lost.
///
/// Adopts and reaps orphans: only for programs whose children are all commands.
///
/// Throws job_exception: type "command" if the program cannot be found or executed; type "memory" if it and
/// the processes that it started exceeded the job's limit of private memory; all of them are killed first.
void run_command(JobCall& call);

}  // namespace penstock::job_worker
