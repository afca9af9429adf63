// Keeps the library's threads from receiving signals meant for the embedding program. Used wherever a thread
// is started.
#pragma once

#include <csignal>

namespace penstock {

/// Blocks all signals in the calling thread while the object exists. Threads started in that time inherit the
/// blocked mask.
class all_signals_blocked {
 public:
  all_signals_blocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~all_signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  all_signals_blocked(const all_signals_blocked&) = delete;
  all_signals_blocked& operator=(const all_signals_blocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace penstock
