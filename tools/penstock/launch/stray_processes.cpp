#include "tools/penstock/launch/stray_processes.hpp"

#include "runtime/base/fd.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/process/process_facts.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <set>

namespace penstock::cli {
namespace {

using clock = std::chrono::steady_clock;

void reap_all_that_ended() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

constexpr std::chrono::milliseconds look_every(50);

/// Time during which this process was stopped does not count.
patient_deadline deadline_in(std::chrono::milliseconds patience) {
  patient_deadline until(patience, look_every);
  until.restart(clock::now());
  return until;
}

void wait_for_end(pid_t pid, patient_deadline& until) {
  const unique_fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
  if (!pidfd) return;
  pollfd one{pidfd.get(), POLLIN, 0};
  while (!until.is_over(clock::now()) && ::poll(&one, 1, static_cast<int>(look_every.count())) <= 0) {
  }
}

/// A process that has exited has no environment.
bool has_all(pid_t pid, const std::vector<std::string>& variables) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  std::set<std::string> found;
  for (std::string one; std::getline(in, one, '\0');) found.insert(std::move(one));
  return std::ranges::all_of(variables, [&found](const std::string& v) { return found.contains(v); });
}

}  // namespace

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void reap_strays(const std::function<bool(pid_t)>& is_rank) {
  while (true) {
    siginfo_t first{};
    // WNOWAIT: do not reap here, because ranks are reaped by their child_process.
    if (::waitid(P_ALL, 0, &first, WEXITED | WNOHANG | WNOWAIT) != 0 || first.si_pid == 0) return;
    if (is_rank(first.si_pid)) return;
    ::waitpid(first.si_pid, nullptr, WNOHANG);
  }
}

std::size_t kill_strays(std::chrono::milliseconds patience) {
  patient_deadline until = deadline_in(patience);
  std::set<pid_t> killed;
  reap_all_that_ended();
  while (true) {
    const auto below = process::descendants_of(::getpid());
    if (below.empty()) break;
    for (const pid_t pid : below) {
      ::kill(pid, SIGKILL);
      killed.insert(pid);
    }
    // The children of killed processes become ours; the next round finds them.
    for (const pid_t pid : below) wait_for_end(pid, until);
    reap_all_that_ended();
    if (until.is_over(clock::now())) break;
  }
  reap_all_that_ended();
  return killed.size();
}

std::size_t kill_strays_with(const std::vector<std::string>& variables, std::chrono::milliseconds patience) {
  patient_deadline until = deadline_in(patience);
  std::set<pid_t> killed;
  do {
    std::vector<pid_t> left;
    for (const pid_t pid : process::descendants_of(::getpid())) {
      if (has_all(pid, variables)) left.push_back(pid);
    }
    if (left.empty()) break;
    for (const pid_t pid : left) {
      ::kill(pid, SIGKILL);
      killed.insert(pid);
    }
    for (const pid_t pid : left) {
      wait_for_end(pid, until);
      ::waitpid(pid, nullptr, WNOHANG);  // fails if the process's parent is still alive
    }
  } while (!until.is_over(clock::now()));
  return killed.size();
}

}  // namespace penstock::cli
