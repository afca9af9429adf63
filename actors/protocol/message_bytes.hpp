// The payload of a frame: the members of a message in the order of their declarations. Integers, enumerators and
// the bits of a double are big-endian; a bool is a byte; strings, vectors and maps follow their length, which is
// written seven bits at a time with the lowest first. A reader allocates nothing for elements that the payload is
// too short for.
#pragma once

#include "actors/protocol/members.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace penstock::protocol {

namespace detail {

template <std::integral Number>
constexpr auto as_big_endian(Number number) noexcept {
  using bits = std::make_unsigned_t<Number>;
  if constexpr (sizeof(Number) == 1) return static_cast<bits>(number);
  if constexpr (sizeof(Number) == 2) return static_cast<bits>(__builtin_bswap16(static_cast<bits>(number)));
  if constexpr (sizeof(Number) == 4) return static_cast<bits>(__builtin_bswap32(static_cast<bits>(number)));
  if constexpr (sizeof(Number) == 8) return static_cast<bits>(__builtin_bswap64(static_cast<bits>(number)));
}

}  // namespace detail

/// Passes the bytes of a message to Out::take(data, count).
template <class Out>
class byte_output {
 public:
  /// Returns true: a visitor of members returns whether to continue.
  bool operator()(const auto& value) {
    put(value);
    return true;
  }

 private:
  template <class T>
  void put(const T& value) {
    if constexpr (std::same_as<T, bool>) {
      put(std::uint8_t{value});
    } else if constexpr (std::integral<T>) {
      const auto bits = detail::as_big_endian(value);
      take(&bits, sizeof bits);
    } else if constexpr (std::is_enum_v<T>) {
      put(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (std::same_as<T, double>) {
      put(std::bit_cast<std::uint64_t>(value));
    } else {
      visit_members(value, *this);
    }
  }
  void put(const std::string& text) {
    put_length(text.size());
    take(text.data(), text.size());
  }
  void put(const std::chrono::nanoseconds& time) { put(time.count()); }
  template <class T>
  void put(const std::optional<T>& maybe) {
    put(maybe.has_value());
    if (maybe) put(*maybe);
  }
  template <class T>
  void put(const std::vector<T>& list) {
    put_length(list.size());
    for (const T& item : list) put(item);
  }
  template <class T, std::size_t N>
  void put(const std::array<T, N>& list) {
    for (const T& item : list) put(item);
  }
  void put(const std::map<std::string, std::string>& map) {
    put_length(map.size());
    for (const auto& [key, value] : map) {
      put(key);
      put(value);
    }
  }
  void put_length(std::size_t length) {
    for (; length > 0x7f; length >>= 7U) put(static_cast<std::uint8_t>((length & 0x7fU) | 0x80U));
    put(static_cast<std::uint8_t>(length));
  }
  void take(const void* data, std::size_t count) { static_cast<Out*>(this)->take(data, count); }
};

/// Counts the bytes that a message takes.
class byte_counter : public byte_output<byte_counter> {
 public:
  void take(const void* /*data*/, std::size_t count) { bytes_ += count; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// Writes as many bytes as the counter has counted.
class byte_writer : public byte_output<byte_writer> {
 public:
  explicit byte_writer(char* to) : to_(to) {}
  void take(const void* data, std::size_t count) {
    std::memcpy(to_, data, count);
    to_ += count;
  }

 private:
  char* to_;
};

/// Reads a message from bytes that may be anything. After a failed read the message's contents are
/// unspecified.
class byte_reader {
 public:
  explicit byte_reader(std::span<const char> bytes) : rest_(bytes) {}

  /// Reads a value. False if the bytes end too early, or a length is wrong.
  [[nodiscard]] bool operator()(auto& value) { return get(value); }
  [[nodiscard]] std::size_t remaining() const noexcept { return rest_.size(); }

 private:
  template <class T>
  bool get(T& value) {
    if constexpr (std::same_as<T, bool>) {
      return get_as<std::uint8_t>(value, [](std::uint8_t byte) { return byte != 0; });
    } else if constexpr (std::integral<T>) {
      if (rest_.size() < sizeof value) return false;
      std::make_unsigned_t<T> bits = 0;
      std::memcpy(&bits, rest_.data(), sizeof bits);
      value = static_cast<T>(detail::as_big_endian(bits));
      rest_ = rest_.subspan(sizeof bits);
      return true;
    } else if constexpr (std::is_enum_v<T>) {
      return get_as<std::underlying_type_t<T>>(value, [](auto number) { return static_cast<T>(number); });
    } else if constexpr (std::same_as<T, double>) {
      return get_as<std::uint64_t>(value, [](std::uint64_t bits) { return std::bit_cast<double>(bits); });
    } else {
      return visit_members(value, *this);
    }
  }
  template <class Sent, class T, class Convert>
  bool get_as(T& value, Convert convert) {
    Sent sent{};
    if (!get(sent)) return false;
    value = convert(sent);
    return true;
  }
  bool get(std::string& text) {
    std::size_t length = 0;
    if (!get_length(length) || length > rest_.size()) return false;
    text.assign(rest_.data(), length);
    rest_ = rest_.subspan(length);
    return true;
  }
  bool get(std::chrono::nanoseconds& time) {
    return get_as<std::int64_t>(time, [](std::int64_t ns) { return std::chrono::nanoseconds(ns); });
  }
  template <class T>
  bool get(std::optional<T>& maybe) {
    bool there = false;
    maybe.reset();
    return get(there) && (!there || get(maybe.emplace()));
  }
  template <class T>
  bool get(std::vector<T>& list) {
    std::size_t length = 0;
    if (!get_length(length)) return false;
    list.clear();
    if constexpr (std::integral<T>) {
      if (length > rest_.size() / sizeof(T)) return false;
      list.reserve(length);
    }
    for (; length > 0; --length) {
      if (rest_.empty() || !get(list.emplace_back())) return false;
    }
    return true;
  }
  template <class T, std::size_t N>
  bool get(std::array<T, N>& list) {
    return std::ranges::all_of(list, [this](T& item) { return get(item); });
  }
  bool get(std::map<std::string, std::string>& map) {
    std::size_t length = 0;
    if (!get_length(length)) return false;
    map.clear();
    for (; length > 0; --length) {
      std::string key;
      if (!get(key) || !get(map[key])) return false;
    }
    return true;
  }
  bool get_length(std::size_t& length) {
    constexpr unsigned bits_max = 32;
    for (unsigned shift = 0; shift < bits_max; shift += 7) {
      std::uint8_t byte = 0;
      if (!get(byte)) return false;
      length |= static_cast<std::size_t>(byte & 0x7fU) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::span<const char> rest_;
};

}  // namespace penstock::protocol
