// A command line as a job: what the function "command" (actors/job_worker/command.hpp) gets as its argument, and what it
// gives back. Numbers are little-endian, texts have their length (64 bits) before them. Pure; both ends read strictly.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock::protocol {

/// The name under which a worker program serves it.
inline constexpr const char* command_function = "command";

struct command_job {
  static constexpr std::size_t arguments_max = 65'536;

  std::vector<std::string>
      arguments{};  ///< argv; the program is the first, looked up in PATH; no shell sees them
  std::uint64_t output_bytes_max = 1 << 20;  ///< kept of what it writes to stdout, and as much of stderr

  bool operator==(const command_job&) const = default;
};

/// What a command has written to one of its descriptors.
struct command_output {
  std::string kept{};         ///< its beginning
  std::uint64_t written = 0;  ///< in all: more than kept.size() if something was left out

  bool operator==(const command_output&) const = default;
};

/// Of a command that exited. One that a signal ended has no outcome: its worker dies of the same signal.
struct command_outcome {
  std::int32_t exit_code = 0;
  command_output out{};
  command_output err{};

  bool operator==(const command_outcome&) const = default;
};

[[nodiscard]] std::vector<std::byte> as_bytes(const command_job& job);
[[nodiscard]] std::vector<std::byte> as_bytes(const command_outcome& outcome);

/// Both refuse (errc::protocol) bytes that as_bytes() does not write; a command also without a program, or with a zero
/// byte in an argument.
result<command_job> command_job_from(std::span<const std::byte> bytes);
result<command_outcome> command_outcome_from(std::span<const std::byte> bytes);

}  // namespace penstock::protocol
