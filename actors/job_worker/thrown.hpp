// Converts an exception thrown by a function into its job's error. Used by the job_runner and by by_hand.
#pragma once

#include "runtime/arena/job_error.hpp"

namespace penstock::job_worker {

/// Call in a catch block. Returns type (in C++ spelling), text and traceback of the current exception. Cannot
/// handle a thread that is being cancelled (pthread_exit, pthread_cancel): the process then aborts with a
/// message.
[[nodiscard]] arena::job_exception_text thrown();

}  // namespace penstock::job_worker
