#include "actors/job_worker/command_family.hpp"

#include "runtime/base/fd.hpp"
#include "runtime/process/child_end.hpp"
#include "runtime/process/process_facts.hpp"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <utility>

namespace penstock::job_worker {
namespace {

constexpr std::chrono::seconds orphans_are_reaped_every{1};
// A killed process takes longer only in an uninterruptible system call. Must be less than 2 s: the pool kills
// this worker 2 s after asking it to abort.
constexpr std::chrono::seconds killed_are_gone_within{1};

/// Whether `pid` is this process's only child. Reads only the first thread's children, because that thread
/// starts the commands and adopts orphans. Much cheaper than listing all descendants.
bool is_only_child(pid_t pid) {
  std::ifstream children(fmt::format("/proc/self/task/{}/children", ::getpid()));
  pid_t one = 0;
  while (children >> one) {
    if (one != pid) return false;
  }
  return one == pid;
}

}  // namespace

command_family::command_family(const group_watchdog& watchdog) : watchdog_(watchdog) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  pid_t reaped = 0;
  do {
    reaped = ::waitpid(-1, nullptr, WNOHANG);
  } while (reaped > 0);
  if (reaped < 0 || is_only_child(watchdog.pid())) return;  // no process is left
  const std::vector<pid_t> left = members();
  earlier_.insert(left.begin(), left.end());
}

std::vector<pid_t> command_family::members() const {
  std::vector<pid_t> all = process::descendants_of(::getpid());
  std::erase(all, watchdog_.pid());
  if (earlier_.empty()) return all;
  std::set<pid_t> others = earlier_;
  for (const pid_t one : earlier_) {
    const std::vector<pid_t> below = process::descendants_of(one);
    others.insert(below.begin(), below.end());
  }
  std::erase_if(all, [&others](pid_t one) { return others.contains(one); });
  return all;
}

void command_family::kill() const {
  std::set<pid_t> all;
  for (bool more = true; more;) {
    more = false;
    for (const pid_t one : members()) {
      if (all.insert(one).second) more = ::kill(one, SIGSTOP) == 0 || more;
    }
  }
  std::vector<unique_fd> killed;
  for (const pid_t one : all) {
    if (unique_fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, one, 0U))); pidfd) killed.push_back(std::move(pidfd));
    ::kill(one, SIGKILL);
  }
  process::wait_until_gone(killed, killed_are_gone_within);  // until then they may hold memory, files and the GPU
}

void command_family::reap_orphans(pid_t command) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_reaping_) return;
  next_reaping_ = now + orphans_are_reaped_every;
  siginfo_t first{};
  // waitid() reports the exited command again and again, which hides other orphans. They are reaped before
  // the next command.
  while (::waitid(P_ALL, 0, &first, WEXITED | WNOHANG | WNOWAIT) == 0 && first.si_pid != 0 &&
         first.si_pid != command) {
    ::waitpid(first.si_pid, nullptr, WNOHANG);
    first = {};
  }
}

}  // namespace penstock::job_worker
