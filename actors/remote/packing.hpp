// Compressed batches ([loader.hosts] compress): in parts, each compressed alone, so that sender and receiver work at the same
// time and need little memory. A part that does not become smaller travels as it is. Used by hosted_worker and remote_connection.
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

/// Used by one thread.
class packer {
 public:
  /// Null for `none`. Refuses (errc::config) if the library is missing.
  static result<std::unique_ptr<packer>> open(compress_rule how);
  virtual ~packer() = default;
  packer(const packer&) = delete;
  packer& operator=(const packer&) = delete;

  /// Returns how much of `to` it has filled; 0: it does not fit.
  virtual std::size_t pack(std::span<const std::byte> bytes, std::span<std::byte> to) = 0;
  /// Fills `to`. False: the bytes are damaged.
  virtual bool unpack(std::span<const std::byte> packed, std::span<std::byte> to) = 0;

 protected:
  packer() = default;
};

/// Sends the digest of `bytes` afterwards if it is given. Refuses (errc::io) as host_stream::flush does.
result<void> send_packed(host_stream& to, packer& with, std::span<const std::byte> bytes, nanoseconds silence_max,
                         running_digest* digest = nullptr);

/// Fills `room` with what send_packed() sent. False: the bytes are damaged. Refuses (errc::io) as host_stream::read_raw does,
/// and (errc::protocol) a part larger than it may be.
result<bool> receive_packed(host_stream& from, packer& with, std::span<std::byte> room, nanoseconds silence_max,
                            running_digest* digest = nullptr);
/// The same for bytes that nobody wants.
result<void> skip_packed(host_stream& from, std::uint64_t bytes, nanoseconds silence_max);

}  // namespace penstock::hosts
