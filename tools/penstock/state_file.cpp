#include "tools/penstock/state_file.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/schedule/epoch_book.hpp"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

namespace penstock::cli {

result<std::chrono::milliseconds> parse_state_pace(const std::string& text) {
  constexpr std::chrono::milliseconds shortest{10};
  const auto pace = parse_duration(text);
  if (!pace) return refuse(errc::usage, "--state-every: {}", pace.error().message);
  if (*pace < shortest) {
    return refuse(errc::usage, "--state-every '{}': must be at least {}", printable(text),
                  duration_for_people(shortest));
  }
  return std::chrono::ceil<std::chrono::milliseconds>(*pace);
}

result<std::vector<std::byte>> read_state(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return std::vector<std::byte>();
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.good() && !in.eof())
    return refuse_os(errc::io, errno, fmt::format("reading the state '{}'", printable(path)));
  if (text.empty()) return refuse(errc::state_mismatch, "the state file '{}' is empty", printable(path));
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  std::vector<std::byte> state(first, first + text.size());
  if (auto ok = schedule::parse_state(state); !ok)
    return refuse(ok.error().code, "the state file '{}': {}", printable(path), ok.error().message);
  return state;
}

}  // namespace penstock::cli
