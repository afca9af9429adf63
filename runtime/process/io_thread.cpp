#include "runtime/process/io_thread.hpp"

#include <pthread.h>

#include <csignal>

namespace penstock::process {

all_signals_blocked::all_signals_blocked() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

all_signals_blocked::~all_signals_blocked() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

io_thread::io_thread() : context_(1), keep_running_(context_.get_executor()) {
  const all_signals_blocked quiet;
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "penstock-io");
    context_.run();
  });
}

io_thread::~io_thread() {
  keep_running_.reset();
  context_.stop();
  thread_.join();
}

}  // namespace penstock::process
