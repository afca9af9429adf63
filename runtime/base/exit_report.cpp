#include "runtime/base/exit_report.hpp"

#include <fmt/core.h>

#include <array>
#include <csignal>
#include <string_view>

namespace penstock::process {
namespace {

struct named_signal {
  int number;
  std::string_view name;
};

// sigabbrev_np needs glibc 2.32.
constexpr std::array named_signals{
    named_signal{SIGHUP, "HUP"},       named_signal{SIGINT, "INT"},       named_signal{SIGQUIT, "QUIT"},
    named_signal{SIGILL, "ILL"},       named_signal{SIGTRAP, "TRAP"},     named_signal{SIGABRT, "ABRT"},
    named_signal{SIGBUS, "BUS"},       named_signal{SIGFPE, "FPE"},       named_signal{SIGKILL, "KILL"},
    named_signal{SIGUSR1, "USR1"},     named_signal{SIGSEGV, "SEGV"},     named_signal{SIGUSR2, "USR2"},
    named_signal{SIGPIPE, "PIPE"},     named_signal{SIGALRM, "ALRM"},     named_signal{SIGTERM, "TERM"},
    named_signal{SIGSTKFLT, "STKFLT"}, named_signal{SIGCHLD, "CHLD"},     named_signal{SIGCONT, "CONT"},
    named_signal{SIGSTOP, "STOP"},     named_signal{SIGTSTP, "TSTP"},     named_signal{SIGTTIN, "TTIN"},
    named_signal{SIGTTOU, "TTOU"},     named_signal{SIGURG, "URG"},       named_signal{SIGXCPU, "XCPU"},
    named_signal{SIGXFSZ, "XFSZ"},     named_signal{SIGVTALRM, "VTALRM"}, named_signal{SIGPROF, "PROF"},
    named_signal{SIGWINCH, "WINCH"},   named_signal{SIGPOLL, "POLL"},     named_signal{SIGPWR, "PWR"},
    named_signal{SIGSYS, "SYS"}};

}  // namespace

std::string signal_name(int signal) {
  for (const named_signal& known : named_signals) {
    if (known.number == signal) return fmt::format("SIG{}", known.name);
  }
  return fmt::format("signal {}", signal);
}

}  // namespace penstock::process
