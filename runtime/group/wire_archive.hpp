// Writes and reads the messages of a group as bytes, little-endian. One description of a message serves both directions:
// fields(archive, message), where the archive is a writer or a reader. Used by group_wire and collective_messages.
//
// Input is untrusted: announced sizes are compared with the bytes present before anything is allocated.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/base/text.hpp"

#include <fmt/format.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock::group {

template <class T>
concept wire_number = std::unsigned_integral<T> && !std::same_as<T, bool>;

class wire_writer {
 public:
  static constexpr bool reads = false;

  template <wire_number T>
  void operator()(const T& value) {
    for (unsigned i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>((value >> (8 * i)) & 0xffU));
  }
  void operator()(const std::int32_t& value) { (*this)(static_cast<std::uint32_t>(value)); }
  void operator()(const bool& value) { bytes_.push_back(value ? 1 : 0); }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(const Enum& value, Enum /*last*/) { (*this)(static_cast<std::uint8_t>(value)); }
  /// A text for people, cut to the limit.
  void text(const std::string& value, std::size_t limit) { put(shortened(value, limit)); }
  /// A text for programs, refused if too long. `what`: "a host's name".
  void exact(const std::string& value, std::size_t limit, const char* what) {
    if (value.size() > limit) too_large(what, value.size(), limit);
    put(value);
  }
  /// At most `limit` elements of at least `each` bytes, written and read by item(element). `what`: "snapshots".
  template <class T, class Item>
  void list(const std::vector<T>& values, std::size_t limit, std::size_t /*each*/, const char* what,
            Item item) {
    if (values.size() > limit) too_large(fmt::format("number of {}", what), values.size(), limit);
    (*this)(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) item(value);
  }
  /// Whatever `part` writes may have at most `limit` bytes.
  template <class Part>
  void within(std::size_t limit, const char* what, Part part) {
    const std::size_t begin = bytes_.size();
    part();
    if (bytes_.size() - begin > limit) too_large(what, bytes_.size() - begin, limit);
  }
  template <class T, class Fields>
  void maybe(const std::optional<T>& value, Fields its) {
    (*this)(value.has_value());
    if (value) its(*value);
  }

  /// The most ranks that a message may name.
  [[nodiscard]] static std::size_t ranks() noexcept { return std::numeric_limits<std::size_t>::max(); }
  [[nodiscard]] std::string take() { return std::move(bytes_); }
  /// Names the first element that is too large; empty if none is.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }

 private:
  void put(std::string_view value) {
    (*this)(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
  }
  void too_large(std::string_view what, std::size_t size, std::size_t limit) {
    if (refusal_.empty()) refusal_ = fmt::format("{} of {}, but at most {} can be sent", what, size, limit);
  }

  std::string bytes_;
  std::string refusal_;
};

class wire_reader {
 public:
  static constexpr bool reads = true;

  wire_reader(std::string_view bytes, std::uint32_t world_size) : rest_(bytes), ranks_(world_size) {}

  template <wire_number T>
  void operator()(T& value) {
    const std::string_view raw = take(sizeof(T));
    value = 0;
    for (unsigned i = 0; i < raw.size(); ++i)
      value = static_cast<T>(value |
                             static_cast<T>(static_cast<T>(static_cast<unsigned char>(raw[i])) << (8 * i)));
  }
  void operator()(std::int32_t& value) {
    std::uint32_t raw = 0;
    (*this)(raw);
    value = static_cast<std::int32_t>(raw);
  }
  void operator()(bool& value) {
    std::uint8_t raw = 0;
    (*this)(raw);
    if (raw > 1) fail("a boolean");
    value = raw == 1;
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(Enum& value, Enum last) {
    std::uint8_t raw = 0;
    (*this)(raw);
    if (raw > static_cast<std::uint8_t>(last)) return fail("an enumerator");
    value = static_cast<Enum>(raw);
  }
  void text(std::string& value, std::size_t limit) { exact(value, limit, "a text"); }
  void exact(std::string& value, std::size_t limit, const char* what) {
    std::uint32_t size = 0;
    (*this)(size);
    if (size > limit) return fail(what);
    value = take(size);
  }
  template <class T, class Item>
  void list(std::vector<T>& values, std::size_t limit, std::size_t each, const char* what, Item item) {
    std::uint32_t count = 0;
    (*this)(count);
    if (count > limit || count > rest_.size() / each) return fail(fmt::format("a list of {}", what));
    values.resize(count);
    for (T& value : values) {
      if (good()) item(value);
    }
  }
  template <class Part>
  void within(std::size_t limit, const char* what, Part part) {
    const std::size_t before = rest_.size();
    part();
    if (before - rest_.size() > limit) fail(what);
  }
  template <class T, class Fields>
  void maybe(std::optional<T>& value, Fields its) {
    bool there = false;
    (*this)(there);
    if (there && good()) its(value.emplace());
  }

  [[nodiscard]] std::size_t ranks() const noexcept { return ranks_; }
  void fail(std::string what) {
    if (good()) wrong_ = std::move(what);
    rest_ = {};
  }
  [[nodiscard]] bool good() const noexcept { return wrong_.empty(); }
  /// Refuses (errc::protocol) invalid and trailing bytes. `message`: "a report".
  result<void> done(const char* message) const {
    if (!good()) return refuse(errc::protocol, "{} is truncated or corrupt: {}", message, wrong_);
    if (!rest_.empty())
      return refuse(errc::protocol, "{} is followed by {} stray bytes", message, rest_.size());
    return {};
  }

 private:
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) fail("its end is missing");
    if (!good()) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  std::size_t ranks_;
  std::string wrong_;
};

/// T for a reader, const T for a writer.
template <class Archive, class T>
using in_archive = std::conditional_t<Archive::reads, T, const T>;

/// 32-bit numbers, at most one for each rank.
template <class Archive, class Numbers>
void ranks_of(Archive& io, Numbers& values) {
  io.list(values, io.ranks(), sizeof(std::uint32_t), "ranks", [&io](auto& value) { io(value); });
}

}  // namespace penstock::group
