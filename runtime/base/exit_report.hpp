// How a process ended. runtime/process makes this report when it reaps the process; every decision about that
// end is based on it.
#pragma once

#include "runtime/base/exit_codes.hpp"

#include <sys/types.h>

#include <chrono>
#include <string>

namespace penstock::process {

struct exit_report {
  enum class how { exited, signalled, unknown };
  pid_t pid = -1;
  how ending = how::unknown;  ///< unknown: reaped by other code (SIGCHLD ignored, waitpid(-1))
  int code = 0;               ///< exit status, or signal number
  /// when its death was noticed
  std::chrono::system_clock::time_point noticed = std::chrono::system_clock::now();

  [[nodiscard]] bool exited_with(int status) const noexcept { return ending == how::exited && code == status; }
  /// Whether a restarted process would exit the same way.
  [[nodiscard]] bool is_permanent() const noexcept { return ending == how::exited && exit_codes::is_permanent(code); }
  [[nodiscard]] bool ended_by(int signal) const noexcept { return ending == how::signalled && code == signal; }
};

/// "SIGSEGV"; "signal 77" for one without a name.
[[nodiscard]] std::string signal_name(int signal);

}  // namespace penstock::process
