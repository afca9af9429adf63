// What a function threw, as its job's error. Used by the job_runner and by by_hand.
#pragma once

#include "runtime/arena/job_error.hpp"

namespace penstock::job_worker {

/// To be called in a handler: type (as it is written in C++), text and traceback of whatever is being handled. A thread
/// that is being ended (pthread_exit, pthread_cancel) cannot be handled at all: then the process aborts, and says so.
[[nodiscard]] arena::job_exception_text thrown();

}  // namespace penstock::job_worker
