#include "actors/job_worker/abort_notice.hpp"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>

namespace penstock::job_worker {
namespace {

// Stays open for the life of the process: a handler that runs late on another thread must not write to a
// reused descriptor.
std::atomic<int> event{-1};
std::atomic<bool> came{false};
struct sigaction usual {};

/// Async-signal-safe.
void on_abort(int signal, siginfo_t* info, void* /*context*/) {
  const int saved = errno;
  if (info->si_code <= 0 && info->si_pid != ::getpid()) {
    came = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event, &one, sizeof one);
  } else {
    // The signal arrives again when this handler returns.
    ::sigaction(signal, &usual, nullptr);
    ::syscall(SYS_tgkill, ::getpid(), ::syscall(SYS_gettid), signal);
  }
  errno = saved;
}

}  // namespace

abort_notice::abort_notice() {
  if (event < 0) event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) return;
  ::sigaction(SIGABRT, nullptr, &usual);
  struct sigaction ours {};
  ours.sa_sigaction = on_abort;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGABRT, &ours, nullptr);
}

abort_notice::~abort_notice() {
  if (event < 0) return;
  ::sigaction(SIGABRT, &usual, nullptr);
  if (came) follow();
}

int abort_notice::fd() const noexcept {
  return event;
}

bool abort_notice::has_come() const noexcept {
  return came;
}

void abort_notice::follow() const {
  ::sigaction(SIGABRT, &usual, nullptr);
  ::raise(SIGABRT);
  std::abort();
}

}  // namespace penstock::job_worker
