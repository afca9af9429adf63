#include "runtime/process/lifeline.hpp"

#include "runtime/base/exit_codes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

namespace penstock::process {
namespace {

/// Async-signal-safe. Kills the group only if we lead it, because a program started by hand must not kill its shell.
[[noreturn]] void end_of_the_line() {
  if (::getpgrp() == ::getpid()) ::kill(0, SIGKILL);
  ::_exit(exit_codes::parent_lost);
}

void on_hangup(int) {
  end_of_the_line();
}

/// poll() ignores an entry whose descriptor is -1.
void watch(int lifeline_fd, int parent_fd, int stop_fd, std::chrono::milliseconds interval,
           const std::function<void()>& tick) {
  std::array<pollfd, 3> ends{{{lifeline_fd, POLLIN, 0}, {stop_fd, POLLIN, 0}, {parent_fd, POLLIN, 0}}};
  while (true) {
    tick();
    const int ready = ::poll(ends.data(), ends.size(), static_cast<int>(interval.count()));
    if (ready < 0 && errno != EINTR) end_of_the_line();
    if (ready <= 0) continue;
    if (ends[1].revents != 0) return;
    if (ends[0].revents != 0 || ends[2].revents != 0) end_of_the_line();
  }
}

}  // namespace

/// Becomes readable when the parent ends. -1 if the kernel refuses; the other two mechanisms still work.
unique_fd watch_parent() {
  const pid_t parent = ::getppid();
  unique_fd end(static_cast<int>(::syscall(SYS_pidfd_open, parent, 0U)));
  // If the parent has already died, its number may belong to another process; SIGHUP is then pending.
  if (::getppid() != parent) end.reset();
  return end;
}

result<lifeline> lifeline::create() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return refuse_os(errc::system, errno, "creating the lifeline (pipe2)");
  return lifeline{unique_fd(ends[0]), unique_fd(ends[1])};
}

lifeline_guard::lifeline_guard(int lifeline_fd, std::chrono::milliseconds interval,
                               std::function<void()> tick)
    : parent_(watch_parent()) {
  struct sigaction action {};
  action.sa_handler = on_hangup;
  ::sigfillset(&action.sa_mask);
  ::sigaction(SIGHUP, &action, nullptr);
  watcher_ = std::thread([=, parent = parent_.get(), stop = stop_.fd(), tick = std::move(tick)] {
    // This thread may handle SIGHUP; all other signals are for the program's own threads.
    sigset_t others;
    ::sigfillset(&others);
    ::sigdelset(&others, SIGHUP);
    ::pthread_sigmask(SIG_SETMASK, &others, nullptr);
    // The spawner requested SIGHUP for the parent's death, but a stopped process does not handle it. Each
    // thread can request its own signal, so this one requests SIGCONT, which continues the process.
    ::prctl(PR_SET_PDEATHSIG, SIGCONT);
    watch(lifeline_fd, parent, stop, interval, tick);
  });
}

lifeline_guard::~lifeline_guard() {
  stop_.raise();
  watcher_.join();
}

}  // namespace penstock::process
