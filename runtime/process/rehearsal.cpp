#include "runtime/process/rehearsal.hpp"

#include "runtime/process/crash_notes.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
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
  switch (static_cast<rehearsed_fault>(value & ((1U << kind_bits) - 1))) {
    case rehearsed_fault::hang:
      while (true) ::pause();
    case rehearsed_fault::exit: ::_exit(exit_code);
    case rehearsed_fault::leak: {
      const int saved = errno;
      const std::size_t bytes = static_cast<std::size_t>(value >> kind_bits) << 20U;
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      errno = saved;
      return;
    }
  }
}

}  // namespace

void accept_rehearsed_faults() {
  const char* wanted = std::getenv("PENSTOCK_CHAOS");
  if (wanted == nullptr || std::string_view(wanted) != "1") return;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigfillset(&action.sa_mask);
  // The supervisor's last resorts work all the same.
  ::sigdelset(&action.sa_mask, SIGABRT);
  ::sigdelset(&action.sa_mask, SIGHUP);
  ::sigaction(fault_signal(), &action, nullptr);
}

bool rehearse(pid_t worker, rehearsed_fault fault, std::uint32_t megabytes) noexcept {
  sigval value{};
  value.sival_int = static_cast<int>(static_cast<std::uint32_t>(fault) | (megabytes << kind_bits));
  return ::sigqueue(worker, fault_signal(), value) == 0;
}

}  // namespace penstock::process
