#include "runtime/process/fault_injection.hpp"

#include "runtime/base/fd.hpp"
#include "runtime/process/crash_notes.hpp"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>

namespace penstock::process {
namespace {

constexpr int exit_code = 3;
constexpr unsigned kind_bits = 4;

int fault_signal() noexcept {
  return SIGRTMIN + 5;
}

/// Async-signal-safe: system calls only.
void on_fault(int number, siginfo_t* info, void*) {
  const int worker = working_thread();
  const auto me = static_cast<int>(::syscall(SYS_gettid));
  if (worker != 0 && worker != me && info->si_pid != ::getpid()) {
    siginfo_t passed = *info;
    passed.si_pid = ::getpid();
    if (::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), worker, number, &passed) == 0) return;
  }
  const auto value = static_cast<std::uint32_t>(info->si_value.sival_int);
  switch (static_cast<injected_fault>(value & ((1U << kind_bits) - 1))) {
    case injected_fault::hang:
      while (true) ::pause();
    case injected_fault::exit: ::_exit(exit_code);
    case injected_fault::leak: {
      const int saved = errno;
      const std::size_t bytes = static_cast<std::size_t>(value >> kind_bits) << 20U;
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      errno = saved;
      return;
    }
  }
}

std::mutex injected_mutex;
std::map<pid_t, int> injected;  // the last signal to each child whose end has not been read yet

bool is_child_of_ours(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(stat, line)) return false;
  std::istringstream fields(line.substr(line.rfind(')') + 1));  // the name may contain anything
  char state = 0;
  pid_t parent = 0;
  fields >> state >> parent;
  return parent == ::getpid();
}

bool send(pid_t child, int signal, siginfo_t* info) noexcept {
  // Open the descriptor first, then check the process: if the number was reused in between, the descriptor
  // still refers to the dead process, and the signal has no effect.
  const unique_fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0U)));
  if (!pidfd || !is_child_of_ours(child)) return false;
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, info, 0U) == 0;
}

}  // namespace

void accept_injected_faults() {
  const char* wanted = std::getenv("PENSTOCK_CHAOS");
  if (wanted == nullptr || std::string_view(wanted) != "1") return;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigfillset(&action.sa_mask);
  // Leave SIGABRT and SIGHUP unblocked, so that the supervisor can still kill the process.
  ::sigdelset(&action.sa_mask, SIGABRT);
  ::sigdelset(&action.sa_mask, SIGHUP);
  ::sigaction(fault_signal(), &action, nullptr);
}

bool signal_child(pid_t child, int signal) {
  {
    // Record the signal before sending it, because the child's exit may be read before send() returns.
    const std::lock_guard hold(injected_mutex);
    injected[child] = signal;
  }
  if (send(child, signal, nullptr)) return true;
  const std::lock_guard hold(injected_mutex);
  injected.erase(child);
  return false;
}

bool was_injected(pid_t child, const exit_report& end) {
  const std::lock_guard hold(injected_mutex);
  const auto found = injected.find(child);
  if (found == injected.end()) return false;
  const bool same = end.ended_by(found->second);
  injected.erase(found);
  return same;
}

bool inject_fault(pid_t worker, injected_fault fault, std::uint32_t megabytes) noexcept {
  siginfo_t info{};
  info.si_signo = fault_signal();
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_int = static_cast<int>(static_cast<std::uint32_t>(fault) | (megabytes << kind_bits));
  return send(worker, fault_signal(), &info);
}

}  // namespace penstock::process
