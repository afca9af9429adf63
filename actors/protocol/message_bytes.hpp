// The payload of a frame: the fields of a message in order, as its inspect() lists them. Integers are
// big-endian; a bool is a byte; strings and vectors follow their length, which is written seven bits at a time
// with the lowest first. A reader allocates nothing for elements that the payload is too short for.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
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

template <class Field>
inline constexpr bool is_vector = false;
template <class Element>
inline constexpr bool is_vector<std::vector<Element>> = true;

}  // namespace detail

/// Counts the bytes that a message takes.
class byte_counter {
 public:
  template <class... Fields>
  void operator()(Fields&... fields) {
    (add(fields), ...);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  template <class Field>
  void add(Field& field) {
    if constexpr (std::integral<Field>) {
      bytes_ += sizeof field;
    } else if constexpr (std::same_as<Field, std::string>) {
      add_length(field.size());
      bytes_ += field.size();
    } else if constexpr (detail::is_vector<Field>) {
      add_length(field.size());
      if constexpr (std::integral<typename Field::value_type>) {
        bytes_ += field.size() * sizeof(typename Field::value_type);
      } else {
        for (auto& one : field) add(one);
      }
    } else {
      inspect(*this, field);
    }
  }
  void add_length(std::size_t length) {
    do ++bytes_;
    while ((length >>= 7U) != 0);
  }

  std::size_t bytes_ = 0;
};

/// Writes as many bytes as the counter has counted.
class byte_writer {
 public:
  explicit byte_writer(char* to) : to_(to) {}

  template <class... Fields>
  void operator()(Fields&... fields) {
    (put(fields), ...);
  }

 private:
  template <class Field>
  void put(Field& field) {
    if constexpr (std::same_as<Field, bool>) {
      *to_++ = field ? 1 : 0;
    } else if constexpr (std::integral<Field>) {
      const auto bits = detail::as_big_endian(field);
      std::memcpy(to_, &bits, sizeof bits);
      to_ += sizeof bits;
    } else if constexpr (std::same_as<Field, std::string>) {
      put_length(field.size());
      std::memcpy(to_, field.data(), field.size());
      to_ += field.size();
    } else if constexpr (detail::is_vector<Field>) {
      put_length(field.size());
      for (auto& one : field) put(one);
    } else {
      inspect(*this, field);
    }
  }
  void put_length(std::size_t length) {
    for (; length > 0x7f; length >>= 7U) *to_++ = static_cast<char>((length & 0x7fU) | 0x80U);
    *to_++ = static_cast<char>(length);
  }

  char* to_;
};

/// Reads a message from bytes that may be anything. After a failed read the message's contents are
/// unspecified.
class byte_reader {
 public:
  explicit byte_reader(std::span<const char> bytes) : rest_(bytes) {}

  /// False: the bytes end too early, or a length is wrong.
  template <class... Fields>
  [[nodiscard]] bool operator()(Fields&... fields) {
    return (take(fields) && ...);
  }
  [[nodiscard]] std::size_t remaining() const noexcept { return rest_.size(); }

 private:
  template <class Field>
  bool take(Field& field) {
    if constexpr (std::same_as<Field, bool>) {
      std::uint8_t byte = 0;
      if (!take(byte)) return false;
      field = byte != 0;
      return true;
    } else if constexpr (std::integral<Field>) {
      if (rest_.size() < sizeof field) return false;
      std::make_unsigned_t<Field> bits = 0;
      std::memcpy(&bits, rest_.data(), sizeof bits);
      field = static_cast<Field>(detail::as_big_endian(bits));
      rest_ = rest_.subspan(sizeof bits);
      return true;
    } else if constexpr (std::same_as<Field, std::string>) {
      std::size_t length = 0;
      if (!take_length(length) || length > rest_.size()) return false;
      field.assign(rest_.data(), length);
      rest_ = rest_.subspan(length);
      return true;
    } else if constexpr (detail::is_vector<Field>) {
      return take_list(field);
    } else {
      return inspect(*this, field);
    }
  }
  template <class Element>
  bool take_list(std::vector<Element>& list) {
    std::size_t length = 0;
    if (!take_length(length)) return false;
    list.clear();
    if constexpr (std::integral<Element>) {
      if (length > rest_.size() / sizeof(Element)) return false;
      list.reserve(length);
    }
    for (; length > 0; --length) {
      if (rest_.empty() || !take(list.emplace_back())) return false;
    }
    return true;
  }
  bool take_length(std::size_t& length) {
    constexpr unsigned bits_max = 32;
    for (unsigned shift = 0; shift < bits_max; shift += 7) {
      std::uint8_t byte = 0;
      if (!take(byte)) return false;
      length |= static_cast<std::size_t>(byte & 0x7fU) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::span<const char> rest_;
};

}  // namespace penstock::protocol
