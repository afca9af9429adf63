#include "actors/protocol/command_job.hpp"

#include <algorithm>

namespace penstock::protocol {
namespace {

constexpr std::uint64_t job_magic = 0x32444d4354534e50;      // "PNSTCMD2"
constexpr std::uint64_t outcome_magic = 0x3154554f54534e50;  // "PNSTOUT1"

class writer {
 public:
  writer& number(std::uint64_t value) {
    for (unsigned byte = 0; byte < sizeof value; ++byte)
      bytes.push_back(static_cast<std::byte>(value >> (8 * byte)));
    return *this;
  }
  writer& text(const std::string& value) {
    number(value.size());
    const auto raw = std::as_bytes(std::span(value));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
    return *this;
  }
  std::vector<std::byte> bytes;
};

/// After the end of the input, returns zeroes and empty strings; good() is then false.
class reader {
 public:
  explicit reader(std::span<const std::byte> from) : rest_(from) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    if (rest_.size() < sizeof value) return fail();
    for (unsigned byte = 0; byte < sizeof value; ++byte)
      value |= std::to_integer<std::uint64_t>(rest_[byte]) << (8 * byte);
    rest_ = rest_.subspan(sizeof value);
    return value;
  }
  std::string text() {
    const std::uint64_t size = number();
    if (size > rest_.size()) {
      fail();
      return {};
    }
    std::string value(reinterpret_cast<const char*>(rest_.data()), size);
    rest_ = rest_.subspan(size);
    return value;
  }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool complete() const { return good_ && rest_.empty(); }

 private:
  std::uint64_t fail() {
    good_ = false;
    rest_ = {};
    return 0;
  }
  std::span<const std::byte> rest_;
  bool good_ = true;
};

}  // namespace

std::vector<std::byte> as_bytes(const command_job& job) {
  writer to;
  to.number(job_magic).number(job.output_bytes_max).number(job.memory_bytes_max).number(job.arguments.size());
  for (const std::string& argument : job.arguments) to.text(argument);
  to.number(job.environment.size());
  for (const std::string& variable : job.environment) to.text(variable);
  to.text(job.output_files);
  return std::move(to.bytes);
}

std::vector<std::byte> as_bytes(const command_outcome& outcome) {
  writer to;
  to.number(outcome_magic).number(static_cast<std::uint32_t>(outcome.exit_code)).number(outcome.took_ns);
  for (const command_output* one : {&outcome.out, &outcome.err}) to.number(one->written).text(one->kept);
  return std::move(to.bytes);
}

result<command_job> command_job_from(std::span<const std::byte> bytes) {
  reader from(bytes);
  command_job job;
  const bool ours = from.number() == job_magic;
  job.output_bytes_max = from.number();
  job.memory_bytes_max = from.number();
  const std::uint64_t count = from.number();
  if (!ours || !from.good() || count > command_job::arguments_max)
    return refuse(errc::protocol, "received {} bytes that are not a command line", bytes.size());
  for (std::uint64_t i = 0; i < count && from.good(); ++i) job.arguments.push_back(from.text());
  const std::uint64_t variables = from.number();
  for (std::uint64_t i = 0; i < variables && from.good(); ++i) job.environment.push_back(from.text());
  job.output_files = from.text();
  if (!from.complete())
    return refuse(errc::protocol, "a command line of {} bytes is truncated or corrupt", bytes.size());
  if (job.arguments.empty() || job.arguments.front().empty())
    return refuse(errc::protocol, "a command line without a program");
  for (const std::string& argument : job.arguments) {
    if (argument.find('\0') != std::string::npos)
      return refuse(
          errc::protocol,
          "an argument of a command contains a zero byte: the program would not receive the bytes after it");
  }
  const auto has_zero = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  if (std::ranges::any_of(job.environment, has_zero) || has_zero(job.output_files))
    return refuse(errc::protocol, "a variable or a path of a command contains a zero byte");
  return job;
}

result<command_outcome> command_outcome_from(std::span<const std::byte> bytes) {
  reader from(bytes);
  command_outcome outcome;
  const bool ours = from.number() == outcome_magic;
  const std::uint64_t code = from.number();
  bool possible = code <= 0xffff'ffffU;
  outcome.exit_code = static_cast<std::int32_t>(static_cast<std::uint32_t>(code));
  outcome.took_ns = from.number();
  for (command_output* one : {&outcome.out, &outcome.err}) {
    one->written = from.number();
    one->kept = from.text();
    possible = possible && one->kept.size() <= one->written;
  }
  if (!ours || !possible || !from.complete())
    return refuse(errc::protocol, "received {} bytes that are not the outcome of a command", bytes.size());
  return outcome;
}

}  // namespace penstock::protocol
