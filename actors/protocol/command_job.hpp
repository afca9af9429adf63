// A command line as a job: the argument and the result of the function "command"
// (actors/job_worker/command.hpp). Encoded as in message_bytes.hpp. Pure; parsed strictly on both sides.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock::protocol {

/// The name of the function.
inline constexpr const char* command_function = "command";

struct command_job {
  static constexpr std::size_t arguments_max = 65'536;

  std::vector<std::string>
      arguments{};  ///< argv: first the program, which is looked up in PATH. There is no shell
  std::uint64_t output_bytes_max = 1 << 20;  ///< how much to keep of stdout and of stderr, each
  /// limit on the private memory of the command and its descendants; 0: none
  std::uint64_t memory_bytes_max = 0;
  /// changes to the worker's environment: "NAME=value" sets a variable, "NAME" removes it
  std::vector<std::string> environment{};
  /// The command writes to the files PATH.stdout and PATH.stderr. Empty: it writes to pipes, and the worker
  /// drops what exceeds output_bytes_max.
  std::string output_files{};

  bool operator==(const command_job&) const = default;
};

/// What a command wrote to one of its descriptors.
struct command_output {
  std::string kept{};         ///< the beginning of the output
  std::uint64_t written = 0;  ///< total bytes: more than kept.size() if some were dropped

  bool operator==(const command_output&) const = default;
};

/// The outcome of a command that exited. A command killed by a signal has none: its worker dies of the same
/// signal.
struct command_outcome {
  std::int32_t exit_code = 0;
  command_output out{};
  command_output err{};
  std::uint64_t took_ns = 0;

  bool operator==(const command_outcome&) const = default;
};

[[nodiscard]] std::vector<std::byte> as_bytes(const command_job& job);
[[nodiscard]] std::vector<std::byte> as_bytes(const command_outcome& outcome);

/// Both refuse (errc::protocol) bytes that as_bytes() would not have written. command_job_from also refuses a
/// command without a program or with a zero byte in an argument, a variable or a path.
result<command_job> command_job_from(std::span<const std::byte> bytes);
result<command_outcome> command_outcome_from(std::span<const std::byte> bytes);

}  // namespace penstock::protocol
