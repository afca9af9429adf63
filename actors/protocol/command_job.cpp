#include "actors/protocol/command_job.hpp"

#include "actors/protocol/whole_message.hpp"

#include <algorithm>
#include <utility>

namespace penstock::protocol {
namespace {

struct job_message {
  static constexpr std::uint64_t expected_magic = 0x33444d4354534e50;  // "PNSTCMD3"
  std::uint64_t magic = expected_magic;
  command_job job{};
};
struct outcome_message {
  static constexpr std::uint64_t expected_magic = 0x3254554f54534e50;  // "PNSTOUT2"
  std::uint64_t magic = expected_magic;
  command_outcome outcome{};
};

/// Whether the bytes are exactly one such message.
bool is_exactly(auto& message, std::span<const std::byte> bytes) {
  byte_reader from({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return from(message) && from.remaining() == 0 && message.magic == message.expected_magic;
}

bool has_zero(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

}  // namespace

std::vector<std::byte> as_bytes(const command_job& job) {
  return message_as<std::vector<std::byte>>(job_message{.job = job});
}

std::vector<std::byte> as_bytes(const command_outcome& outcome) {
  return message_as<std::vector<std::byte>>(outcome_message{.outcome = outcome});
}

result<command_job> command_job_from(std::span<const std::byte> bytes) {
  job_message message;
  command_job& job = message.job;
  if (!is_exactly(message, bytes) || job.arguments.size() > command_job::arguments_max)
    return refuse(errc::protocol, "received {} bytes that are not a command line", bytes.size());
  if (job.arguments.empty() || job.arguments.front().empty())
    return refuse(errc::protocol, "a command line without a program");
  if (std::ranges::any_of(job.arguments, has_zero))
    return refuse(
        errc::protocol,
        "an argument of a command contains a zero byte: the program would not receive the bytes after it");
  if (std::ranges::any_of(job.environment, has_zero) || has_zero(job.output_files))
    return refuse(errc::protocol, "a variable or a path of a command contains a zero byte");
  return std::move(job);
}

result<command_outcome> command_outcome_from(std::span<const std::byte> bytes) {
  outcome_message message;
  command_outcome& outcome = message.outcome;
  if (!is_exactly(message, bytes) || outcome.out.kept.size() > outcome.out.written || outcome.err.kept.size() > outcome.err.written)
    return refuse(errc::protocol, "received {} bytes that are not the outcome of a command", bytes.size());
  return std::move(outcome);
}

}  // namespace penstock::protocol
