// Runs ordinary programs as jobs: a function that executes a command and returns its exit status and output.
// Served by `penstock-worker --commands`, called by `penstock map --command`.
#pragma once

#include <penstock/job.hpp>

namespace penstock::job_worker {

/// The argument is a protocol::command_job, the result a protocol::command_outcome. No shell; stdin is
/// /dev/null; penstock's descriptors are not inherited. The command stays in the worker's process group, so
/// whatever kills the worker (a timeout, a cancelled job) also kills the command and all that it started.
///
/// If a signal ends the command, the worker dies of the same signal: the job is charged with the death and
/// retried elsewhere. Processes that outlive the command keep running, but their output is lost.
///
/// Throws job_exception: type "command" if the program cannot be found or executed; type "memory" if it and
/// the processes that it started exceeded the job's limit of private memory; all of them are killed first.
void run_command(JobCall& call);

}  // namespace penstock::job_worker
