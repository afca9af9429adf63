// A message as bytes without a frame.
#pragma once

#include "actors/protocol/message_bytes.hpp"

#include <cstddef>

namespace penstock::protocol {

[[nodiscard]] std::size_t byte_count(const auto& message) {
  byte_counter counted;
  counted(message);
  return counted.bytes();
}

/// Bytes: a std::string or a vector of std::byte.
template <class Bytes>
[[nodiscard]] Bytes message_as(const auto& message) {
  Bytes bytes(byte_count(message), {});
  byte_writer written(reinterpret_cast<char*>(bytes.data()));
  written(message);
  return bytes;
}

}  // namespace penstock::protocol
