// Threads of the library never take a signal that is meant for the program around them. Used by whoever starts one.
#pragma once

#include <csignal>

namespace penstock {

/// Blocks all signals for the calling thread while it lives: threads that are started meanwhile have them blocked
/// for good.
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
