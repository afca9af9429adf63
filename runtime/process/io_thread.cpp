#include "runtime/process/io_thread.hpp"

#include "runtime/base/signals.hpp"

#include <pthread.h>

namespace penstock::process {

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
