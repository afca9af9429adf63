// Runs a program that may hang, crash or flood, and examines how it ended. Used by doctor and launch.
#pragma once

#include "runtime/process/output_file.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace penstock::machine {

using process::last_line;
using process::output_file;

/// How a throwaway child ended. Hangs and crashes are findings, not errors.
struct child_outcome {
  enum class how : std::uint8_t { not_started, finished, hung, died };
  how ending = how::not_started;
  std::string step;     ///< the last step that the child announced: "cuInit"
  std::string trouble;  ///< "did not return within 10 s"; empty: the child finished
  [[nodiscard]] bool good() const noexcept { return ending == how::finished; }
};

struct ended_child {
  child_outcome::how ending = child_outcome::how::not_started;
  int exit_code = -1;
  std::string trouble;  ///< "did not return within 10 s", "was killed by SIGSEGV"; empty: the child exited
  std::string output;
  std::string errors;
};

/// Starts a program with this process's environment and waits; kills its whole process group after the
/// deadline.
ended_child run_to_the_end(const std::string& program, const std::vector<std::string>& arguments,
                           std::chrono::milliseconds deadline);

/// This process's environment, "NAME=value".
std::vector<std::string> environment_now();

}  // namespace penstock::machine
