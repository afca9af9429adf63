#include "actors/job_worker/group_watchdog.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <new>
#include <span>

namespace penstock::job_worker {
namespace {

using entry = group_watchdog::entry;
static_assert(entry::is_always_lock_free && sizeof(entry) == sizeof(pid_t));

std::span<entry> entries_in(const mapping& table) noexcept {
  return {std::launder(reinterpret_cast<entry*>(table.bytes().data())), group_watchdog::groups_max};
}

/// The watching process after fork: only async-signal-safe calls, since other threads may have held any lock.
[[noreturn]] void watch(int worker_end, std::span<entry> groups) {
  ::setpgid(0, 0);  // a kill of the worker's group must not reach this process
  ::prctl(PR_SET_NAME, "penstock-groups");
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  ::dup2(worker_end, 0);
  ::syscall(__NR_close_range, 1U, ~0U, 0U);
  char byte = 0;
  while (::read(0, &byte, 1) < 0 && errno == EINTR) {
  }
  for (entry& one : groups) {
    if (const pid_t group = one; group > 1) ::kill(-group, SIGKILL);
  }
  ::_exit(0);
}

}  // namespace

group_watchdog::group_watchdog() {
  constexpr std::size_t bytes = groups_max * sizeof(entry);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  auto* const begin = static_cast<std::byte*>(memory);
  for (std::size_t i = 0; i < groups_max; ++i) new (begin + i * sizeof(entry)) entry(0);
  table_ = mapping(begin, bytes);
}

bool group_watchdog::is_watched() const noexcept {
  pollfd end{process_.get(), POLLIN, 0};
  return process_ && ::poll(&end, 1, 0) == 0;
}

int group_watchdog::start() {
  if (is_watched()) return 0;
  if (!table_) return ENOMEM;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno;
  const unique_fd read_end(ends[0]);
  unique_fd write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return errno;
  if (pid == 0) watch(read_end.get(), entries_in(table_));
  ::setpgid(pid, pid);  // the child does the same; either call may come first
  process_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
  if (!process_) {
    const int trouble = errno;
    write_end.reset();
    ::waitpid(pid, nullptr, 0);
    return trouble;
  }
  pid_ = pid;
  alive_ = std::move(write_end);
  return 0;
}

group_watchdog::entry* group_watchdog::claim() noexcept {
  entry* unused = nullptr;
  for (entry& one : entries_in(table_)) {
    if (one != 0) release(one);
    if (one == 0 && unused == nullptr) unused = &one;
  }
  return unused;
}

void group_watchdog::release(entry& group) noexcept {
  const pid_t number = group;
  if (number <= 1 || (::kill(-number, 0) != 0 && errno == ESRCH)) group = 0;
}

}  // namespace penstock::job_worker
