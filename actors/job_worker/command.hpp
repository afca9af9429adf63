// Programs that know nothing of penstock as jobs: a function that executes a command and gives back how it exited and
// what it wrote. Served by `penstock-worker --commands`, called by `penstock map --command`.
#pragma once

#include <penstock/job.hpp>

namespace penstock::job_worker {

/// The argument is a protocol::command_job, the result a protocol::command_outcome. No shell, stdin is /dev/null, the
/// descriptors of penstock are not inherited. The command stays in the worker's process group, so whatever ends the
/// worker (a time-out, a cancelled job) ends it too, with all that it has started.
///
/// A command that a signal ended is a death of the worker, of the same signal: it is tried again elsewhere and charged as
/// any death is. Processes that outlive the command keep running, but what they write is lost.
///
/// Throws job_exception (type "command") if the program cannot be found or executed.
void run_command(JobCall& call);

}  // namespace penstock::job_worker
