// Compressed batches ([loader.hosts] compress): in parts that are compressed separately, so that sender and receiver work at the
// same time and need little memory. A part that does not become smaller is sent as it is. Used by hosted_worker and
// remote_connection.
//
// On the wire each part is its size (32 bits) and that many bytes; every part but the last has packed_at_once bytes when
// unpacked. The libraries are opened at run time.
#pragma once

#include "actors/remote/host_stream.hpp"

#include <penstock/config.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace penstock::hosts {

inline constexpr std::size_t packed_at_once = 256 * 1024;

/// Not thread-safe.
class packer {
 public:
  /// Opens the library. Null for `none`. Refuses (errc::config) if the library is missing.
  static result<std::unique_ptr<packer>> open(compress_rule how);
  virtual ~packer() = default;
  packer(const packer&) = delete;
  packer& operator=(const packer&) = delete;

  /// Returns how many bytes of `to` it has filled; 0: the result does not fit.
  virtual std::size_t pack(std::span<const std::byte> bytes, std::span<std::byte> to) = 0;
  /// Fills `to`. False: the bytes are damaged.
  virtual bool unpack(std::span<const std::byte> packed, std::span<std::byte> to) = 0;

 protected:
  packer() = default;
};

/// With `digest`, the digest of `bytes` follows. Refuses (errc::io) as host_stream::flush does.
result<void> send_packed(host_stream& to, packer& with, std::span<const std::byte> bytes, nanoseconds silence_max, bool digest);

/// Fills `room` with what send_packed() sent. Returns how the bytes are damaged; empty: intact. Refuses (errc::io) as
/// host_stream::read_raw does, and (errc::protocol) a part that is too large.
result<std::string> receive_packed(host_stream& from, packer& with, std::span<std::byte> room, nanoseconds silence_max, bool digest);
/// Drops what receive_packed() would read.
result<void> skip_packed(host_stream& from, std::uint64_t bytes, nanoseconds silence_max, bool digest);

}  // namespace penstock::hosts
