#include "runtime/process/child_end.hpp"

#include "runtime/base/patient_deadline.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

// <sys/wait.h> lacks P_PIDFD before glibc 2.36.
#ifndef P_PIDFD
#define P_PIDFD 3
#endif

namespace penstock::process {
namespace {

using std::chrono::milliseconds;

nanoseconds looks_of(nanoseconds deadline) {
  return look_interval(deadline, milliseconds(250));
}

enum class standing { alive, zombie, not_ours };

/// waitid() on the child's pidfd; EAGAIN means "alive" if the pidfd was made non-blocking.
standing look_at(const child& c, siginfo_t& info, int flags) noexcept {
  info = {};
  int status = 0;
  do {
    status = ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(c.pidfd.get()), &info,
                      WEXITED | WNOHANG | flags);
  } while (status != 0 && errno == EINTR);
  if (status != 0) return errno == EAGAIN ? standing::alive : standing::not_ours;
  return info.si_pid == 0 ? standing::alive : standing::zombie;
}

struct stat_line {
  char state = '?';
  pid_t group = 0;
  pid_t session = 0;
};

/// Never waits for the process. Unlike /proc/PID/maps, this file needs no lock that the process may hold.
std::optional<stat_line> read_stat(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // The fields up to the session: pid, name, state, parent, group, session. The kernel cuts names at 64
  // bytes.
  constexpr std::size_t number_bytes = 11;
  constexpr std::size_t name_bytes = 64 + 2;
  std::array<char, 4 * (number_bytes + 1) + name_bytes + 1 + 2 + 1> text{};
  if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) return std::nullopt;
  const char* name_end = std::strrchr(text.data(), ')');  // the name may contain anything
  stat_line line;
  pid_t parent = 0;
  if (name_end == nullptr ||
      std::sscanf(name_end + 1, " %c %d %d %d", &line.state, &parent, &line.group, &line.session) != 4)
    return std::nullopt;
  return line;
}

/// The living processes of the group that a reaped child of ours led. Empty if the child's number now belongs
/// to another process, because the group is then not ours.
std::vector<unique_fd> left_of_group(pid_t group) {
  std::vector<unique_fd> members;
  if (::kill(-group, 0) != 0 && errno == ESRCH) return members;  // usually the group is empty
  const pid_t our_session = ::getsid(0);
  const auto is_member = [&](pid_t pid) {
    const auto line = read_stat(pid);
    // A zombie has released its memory and files, but its other threads may not have. Its pidfd shows whether they have.
    return line && line->group == group && line->session == our_session && line->state != 'X';
  };
  const std::unique_ptr<DIR, int (*)(DIR*)> all(::opendir("/proc"), &::closedir);
  while (const dirent* entry = all ? ::readdir(all.get()) : nullptr) {
    const auto pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid <= 0 || !is_member(pid)) continue;
    if (pid == group) return {};
    unique_fd member(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
    // Check again: the number may have been reused before the pidfd was opened.
    if (!member || !is_member(pid)) continue;
    pollfd end{member.get(), POLLIN, 0};
    if (::poll(&end, 1, 0) == 0) members.push_back(std::move(member));
  }
  return members;
}

void signal_each(const std::vector<unique_fd>& processes, int signal) noexcept {
  for (const unique_fd& p : processes) ::syscall(SYS_pidfd_send_signal, p.get(), signal, nullptr, 0U);
}

/// Whether the pidfd became readable in time.
bool wait_for(const unique_fd& pidfd, patient_deadline& until) {
  const auto turn = std::chrono::ceil<milliseconds>(looks_of(until.limit()));
  pollfd end{pidfd.get(), POLLIN, 0};
  do {
    if (::poll(&end, 1, static_cast<int>(turn.count())) > 0) return true;
  } while (!until.is_over(std::chrono::steady_clock::now()));
  return false;
}

bool wait_for_each(const std::vector<unique_fd>& pidfds, patient_deadline& until) {
  return std::ranges::all_of(pidfds, [&](const unique_fd& one) { return wait_for(one, until); });
}

/// Whether a process (0: the calling thread) may use only one core. Works for a zombie, too.
bool has_one_core(pid_t pid) noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return ::sched_getaffinity(pid, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) == 1;
}

}  // namespace

milliseconds time_to_leave(const child& dead) noexcept {
  return milliseconds(has_one_core(0) || has_one_core(dead.pid) ? 20 : 0);
}

void signal_group(const child& to, int signal) noexcept {
  if (to.pid <= 0) return;
  siginfo_t info;
  if (look_at(to, info, WNOWAIT) != standing::not_ours) {
    ::kill(-to.pid, signal);
    return;
  }
  try {
    signal_each(left_of_group(to.pid), signal);
  } catch (...) {  // no memory for the list, so send no signals
  }
}

ended_child reap_ended(const child& dead) {
  ended_child end{{dead.pid, exit_report::how::unknown, 0}, {}};
  siginfo_t info;
  if (look_at(dead, info, WNOWAIT) == standing::not_ours) {
    end.left_over = left_of_group(dead.pid);
    signal_each(end.left_over, SIGKILL);
    return end;
  }
  ::kill(-dead.pid,
         // the child is a zombie, so its number has not been reused; after SIGKILL, no
         // process of the group can fork
         SIGKILL);
  if (look_at(dead, info, 0) == standing::zombie) {
    end.report.ending = info.si_code == CLD_EXITED ? exit_report::how::exited : exit_report::how::signalled;
    end.report.code = info.si_status;
  }
  end.left_over = left_of_group(dead.pid);
  return end;
}

bool wait_until_gone(const std::vector<unique_fd>& pidfds, milliseconds limit) {
  patient_deadline until(limit, looks_of(limit));
  until.restart(std::chrono::steady_clock::now());
  return wait_for_each(pidfds, until);
}

std::optional<exit_report> reap(const child& dead, milliseconds deadline) {
  patient_deadline until(deadline, looks_of(deadline));
  until.restart(std::chrono::steady_clock::now());
  // Polls, because waitid on a pidfd has no timeout.
  if (!wait_for(dead.pidfd, until)) return std::nullopt;
  std::this_thread::sleep_for(time_to_leave(dead));
  const ended_child end = reap_ended(dead);
  wait_for_each(end.left_over, until);
  return end.report;
}

}  // namespace penstock::process
