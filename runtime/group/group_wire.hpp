// The two messages of a group as bytes: frames on the links between its ranks. Used by runtime/net. Input is
// untrusted: announced sizes are compared with the bytes present before anything is allocated, enumerators
// and booleans are checked, and trailing bytes are refused.
//
//   frame = payload bytes (4, little-endian), type (1), payload
//   hello = "PNSTKGRP", protocol version (4), name of the group; the first frame in each direction.
//           Its format is the same in all versions, so that each side can name the other's version.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/group/group_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::group {

enum class frame_type : std::uint8_t {
  hello,
  report,
  order,
  attachment,  ///< belongs to the message before it; only on links with attachments
};

struct link_hello {
  std::uint32_t protocol = group_protocol;
  std::string group{};
};

inline constexpr std::string_view hello_magic = "PNSTKGRP";

// Limits of a message. Longer texts are cut when they are sent; a report whose card or facts are larger is
// refused.
inline constexpr std::size_t group_name_max = 200;
inline constexpr std::size_t host_name_max = 256;
inline constexpr std::size_t device_name_max = 256;
inline constexpr std::size_t fingerprint_max = 256;
inline constexpr std::size_t communicator_id_max = 1024;  // NCCL's has 128 bytes
inline constexpr std::size_t text_max = 4096;             // causes, refusals
inline constexpr std::size_t settings_max = 1024;         // the most names and values
inline constexpr std::size_t settings_bytes_max =
    64 * 1024;  // total size, including two lengths of 4 bytes for each setting

inline constexpr std::size_t frame_header_bytes = 5;
inline constexpr std::size_t hello_bytes_max = hello_magic.size() + 4 + 4 + group_name_max;

/// The largest payload in a group of this size.
[[nodiscard]] constexpr std::size_t frame_bytes_max(std::uint32_t world_size) noexcept {
  constexpr std::size_t numbers = 256;  // all fields of fixed size in any message
  constexpr std::size_t cause = host_name_max + text_max;
  const std::size_t by_rank = 4 * std::size_t{world_size};
  const std::size_t view = by_rank + fingerprint_max + cause;
  const std::size_t card = host_name_max + device_name_max + settings_bytes_max;
  const std::size_t report =
      card + view + fingerprint_max + cause /* failed */ + text_max /* communicator */ + 8 * held_max;
  const std::size_t order = view + by_rank /* lost */ + text_max /* refusal */ + communicator_id_max;
  return numbers + (report > order ? report : order);
}

/// A whole frame.
[[nodiscard]] std::string encode(const link_hello& hello);
/// Refuses (errc::config) a card or facts beyond the limits above, naming what is too large.
result<std::string> encode(const member_report& report);
result<std::string> encode(const group_order& order);
/// An attachment as a frame. Send it directly after the frame of the message that it belongs to.
[[nodiscard]] std::string attachment_frame(std::string_view bytes);

// Read payloads. Refuse (errc::protocol) what a correct sender would not send in a group of this size.
result<link_hello> decode_hello(std::string_view payload);
result<member_report> decode_report(std::string_view payload, std::uint32_t world_size);
result<group_order> decode_order(std::string_view payload, std::uint32_t world_size);

/// Cuts the bytes of a connection into frames. Holds at most one incomplete frame.
class frame_cutter {
 public:
  struct frame {
    frame_type type = frame_type::hello;
    std::string_view payload;  ///< valid until the next call to a member function
  };

  explicit frame_cutter(std::size_t payload_max) noexcept : payload_max_(payload_max) {}
  /// Takes effect with the next frame.
  void limit(std::size_t payload_max) noexcept { payload_max_ = payload_max; }

  void feed(std::string_view bytes);
  /// Empty if more bytes are needed. Refuses (errc::protocol) a frame whose announced size is too large or
  /// whose type is unknown; after that, it returns no more frames.
  result<std::optional<frame>> next();

 private:
  std::string bytes_;
  std::size_t begin_ = 0;  // start of the bytes not returned yet
  std::size_t payload_max_;
};

}  // namespace penstock::group
