// The loop of a template: waits for orders, and forks a worker for each (<penstock/job.hpp>).
//
// A forked worker must be the session's own child, like one started with exec: only then do waiting, exit codes, death
// signals and process groups work the same way. That takes CLONE_PARENT, which fork() does not offer. So this
// calls clone, and does by hand what glibc's fork() does in a process with one thread: correct the thread id in
// the thread's descriptor, and register the list of robust mutexes.
#include "runtime/base/exit_codes.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/process/fork_order.hpp"

#include <penstock/job.hpp>

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace penstock {
namespace {

using process::fork_answer;

[[noreturn]] void leave(int code) {
  if (code == exit_codes::parent_lost && ::getpgrp() == ::getpid())
    ::kill(0, SIGKILL);  // including programs that imports may have started
  ::_exit(code);
}

void on_session_end(int) {
  leave(exit_codes::parent_lost);
}

/// What the kernel and glibc know about the calling thread.
struct thread_facts {
  int* number = nullptr;  // glibc's copy, which the kernel can write
  void* robust_list = nullptr;
  std::size_t robust_bytes = 0;

  /// Asks the kernel. False if it does not report these facts.
  bool find() {
    return ::prctl(PR_GET_TID_ADDRESS, &number) == 0 && number != nullptr && *number == ::gettid() &&
           ::syscall(SYS_get_robust_list, 0, &robust_list, &robust_bytes) == 0;
  }
};

/// fork() whose child is a child of our parent.
pid_t fork_sibling(const thread_facts& thread, int& pidfd) {
  const unsigned long flags =
      CLONE_PARENT | CLONE_PIDFD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD;
#if defined(__x86_64__)
  const long pid = ::syscall(SYS_clone, flags, nullptr, &pidfd, thread.number, 0UL);
#else  // on other architectures the last two arguments are swapped
  const long pid = ::syscall(SYS_clone, flags, nullptr, &pidfd, 0UL, thread.number);
#endif
  if (pid == 0) ::syscall(SYS_set_robust_list, thread.robust_list, thread.robust_bytes);
  return static_cast<pid_t>(pid);
}

bool answer_forked(int socket, std::uint64_t order, pid_t pid, int pidfd) {
  fork_answer answer;
  answer.what = fork_answer::kind::forked;
  answer.number = order;
  answer.pid = pid;
  return process::send_answer(socket, answer, pidfd);
}

/// In the forked worker: does what spawn() does for one started with exec.
void take_place(int socket, process::received_order& order) {
  // The template may have been killed before its answer. Until the session is certain to know this process, it stays
  // in the template's group, where the session finds it.
  const unique_fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0U)));
  if (!self || !answer_forked(socket, order.order.number, ::getpid(), self.get()))
    ::_exit(exit_codes::parent_lost);
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGHUP);
  if (::getppid() != order.order.session) ::_exit(exit_codes::parent_lost);
  ::signal(SIGHUP, SIG_DFL);
  if (order.order.bound != 0 && ::sched_setaffinity(0, sizeof order.order.cores, &order.order.cores) != 0)
    ::_exit(exit_codes::failed);
  for (std::size_t i = 0; i < order.descriptors.size(); ++i) {
    if (::dup2(order.descriptors[i].get(), order.order.theirs[i]) < 0) ::_exit(exit_codes::failed);
  }
  order.descriptors.clear();
  ::close(socket);
}

void decline(int socket, const std::string& why) {
  fork_answer answer;
  answer.what = fork_answer::kind::declined;
  why.copy(answer.why.data(), answer.why.size() - 1);
  process::send_answer(socket, answer);
  ::close(socket);
  leave(exit_codes::finished);
}

}  // namespace

std::uint32_t fork_on_order(int socket, const fork_hooks& hooks) {
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  struct sigaction action {};
  action.sa_handler = on_session_end;
  ::sigaction(SIGHUP, &action, nullptr);
  thread_facts thread;
  if (!thread.find())
    decline(socket, "this kernel does not support PR_GET_TID_ADDRESS, which forking workers needs");
  if (const std::string why = hooks.unsafe(); !why.empty()) decline(socket, why);
  process::send_answer(socket, {});
  while (true) {
    // Check for a reason not to fork before receiving the order, because the order's own descriptors must not
    // count as one.
    pollfd arrived{socket, POLLIN, 0};
    while (::poll(&arrived, 1, -1) < 0 && errno == EINTR) {
    }
    if (const std::string why = hooks.unsafe(); !why.empty()) decline(socket, why);
    auto order = process::receive_order(socket);
    if (!order || !*order) leave(exit_codes::parent_lost);
    int pidfd = -1;
    hooks.before();
    pid_t pid = 0;
    int error = 0;
    {
      const all_signals_blocked quiet;
      pid = fork_sibling(thread, pidfd);
      error = errno;
      if (pid == 0) take_place(socket, **order);
    }
    if (pid == 0) {
      hooks.in_child();
      return (*order)->order.worker;
    }
    if (pid > 0) {
      answer_forked(socket, (*order)->order.number, pid, unique_fd(pidfd).get());
    } else {
      fork_answer refused;
      refused.what = fork_answer::kind::refused;
      refused.number = (*order)->order.number;
      refused.error = error;
      process::send_answer(socket, refused);
    }
    hooks.in_parent();
  }
}

}  // namespace penstock
