// Copies of parts of remote objects in a local folder, shared by all processes that use it. Used by the remote objects.
//
// An object has two sparse files, named after a hash of its address, version and size. NAME.data is as long as the
// object. NAME.sums has four bytes for each block of 16 KiB: its checksum, or 0 if the block is missing. A block counts
// only if its checksum matches. This makes locks unnecessary: no reader ever sees wrong bytes, even if a process is
// killed while writing, the machine loses power, or two processes write at once.
//
// When the folder reaches its limit, objects that no session uses are emptied; cache_room.hpp decides which.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace penstock {

inline constexpr std::uint64_t cache_block = 16 * 1024;

class cached_object;

class block_cache : public std::enable_shared_from_this<block_cache> {
 public:
  /// Creates the folder, with access for this user only, if it is missing. Refuses (errc::io) a folder that cannot be
  /// created or written to.
  static result<std::shared_ptr<block_cache>> open(const std::string& folder, std::uint64_t bytes_max);

  /// `identity`: must differ between objects, and between versions of an object. Null if its files cannot be opened.
  std::unique_ptr<cached_object> object(const std::string& identity, std::uint64_t bytes);

  // Starts a new session. From now on, objects that this session does not need may be emptied.
  void begin_session();
  /// Marks an object that the session will need.
  void will_use(const std::string& identity, std::uint64_t bytes);

  /// Makes room if there is too little. Called when blocks are added, and directly by tests. Returns the bytes in use afterwards.
  std::uint64_t shrink();

 private:
  friend class cached_object;
  block_cache(std::string folder, std::uint64_t bytes_max) : folder_(std::move(folder)), bytes_max_(bytes_max) {}
  /// Whether there is room for a block of this size.
  bool takes(std::uint64_t bytes);
  [[nodiscard]] std::string path_of(const std::string& identity, std::uint64_t bytes) const;
  [[nodiscard]] std::string session_file() const { return folder_ + "/session"; }
  [[nodiscard]] std::int64_t session_began() const;

  std::string folder_;
  std::uint64_t bytes_max_;
  std::atomic<std::uint64_t> offered_{0};  ///< bytes offered since the last shrink()
  std::atomic<bool> full_{false};
};

/// Thread-safe.
class cached_object {
 public:
  /// Whether all blocks of the range have a checksum. Reads no contents.
  [[nodiscard]] bool has(std::uint64_t at, std::uint64_t bytes) const;
  /// Returns false if a block is missing or damaged.
  [[nodiscard]] bool read(std::uint64_t at, std::span<std::byte> into) const;
  /// Stores the blocks that the range covers completely; the object's last block may be shorter. Failures,
  /// such as a full disk, are ignored.
  void keep(std::uint64_t at, std::span<const std::byte> contents);

 private:
  friend class block_cache;
  cached_object(std::shared_ptr<block_cache> cache, unique_fd data, unique_fd sums, std::uint64_t bytes)
      : cache_(std::move(cache)), data_(std::move(data)), sums_(std::move(sums)), bytes_(bytes) {}

  std::shared_ptr<block_cache> cache_;
  unique_fd data_;
  unique_fd sums_;
  std::uint64_t bytes_;
};

}  // namespace penstock
