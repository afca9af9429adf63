#include "runtime/arena/job_error.hpp"

#include "runtime/base/text.hpp"

#include <algorithm>
#include <cstdint>

namespace penstock::arena {
namespace {

using length = std::uint32_t;
constexpr std::size_t texts = 3;

/// Keeps the first and the last lines of a traceback, because they are the most useful.
std::string without_middle(const std::string& text, std::size_t most) {
  constexpr std::string_view mark = "\n[...]\n";
  if (text.size() <= most) return text;
  if (most <= mark.size()) return text.substr(0, most);
  const std::size_t tail = (most - mark.size()) / 2;
  return text.substr(0, most - mark.size() - tail) + std::string(mark) + text.substr(text.size() - tail);
}

void append(std::vector<std::byte>& to, const std::string& text) {
  const auto size = static_cast<length>(text.size());
  for (unsigned byte = 0; byte < sizeof size; ++byte)
    to.push_back(static_cast<std::byte>(size >> (8 * byte)));
  const auto bytes = std::as_bytes(std::span(text));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

std::vector<std::byte> as_bytes(const job_exception_text& from, std::size_t room) {
  std::vector<std::byte> bytes;
  if (room < texts * sizeof(length)) return bytes;
  room -= texts * sizeof(length);
  const std::string type = shortened(from.type, std::min(room, job_exception_text::type_bytes_max));
  room -= type.size();
  const std::string text = shortened(from.text, std::min(room, job_exception_text::text_bytes_max));
  room -= text.size();
  const std::string traceback =
      without_middle(from.traceback, std::min(room, job_exception_text::traceback_bytes_max));
  bytes.reserve(texts * sizeof(length) + type.size() + text.size() + traceback.size());
  for (const std::string* one : {&type, &text, &traceback}) append(bytes, *one);
  return bytes;
}

result<job_exception_text> job_exception_from(std::span<const std::byte> bytes) {
  job_exception_text found;
  if (bytes.empty()) {
    found.text = "it failed, but there was no room for its error message";
    return found;
  }
  struct field {
    std::string& into;
    std::size_t most;
  };
  std::span<const std::byte> rest = bytes;
  for (const field& one : {field{found.type, job_exception_text::type_bytes_max},
                           field{found.text, job_exception_text::text_bytes_max},
                           field{found.traceback, job_exception_text::traceback_bytes_max}}) {
    length size = 0;
    if (rest.size() < sizeof size)
      return refuse(errc::protocol, "the error of a job is cut off after {} bytes, inside a length field",
                    bytes.size());
    for (unsigned byte = 0; byte < sizeof size; ++byte)
      size |= std::to_integer<length>(rest[byte]) << (8 * byte);
    rest = rest.subspan(sizeof size);
    if (size > one.most || size > rest.size())
      return refuse(
          errc::protocol,
          "the error of a job announces a text of {} bytes, but only {} are left and at most {} are allowed",
          size, rest.size(), one.most);
    one.into.assign(reinterpret_cast<const char*>(rest.data()), size);
    rest = rest.subspan(size);
  }
  if (!rest.empty())
    return refuse(errc::protocol, "the error of a job is followed by {} stray bytes", rest.size());
  return found;
}

}  // namespace penstock::arena
