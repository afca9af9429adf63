// Reads ranges of an archive that is compressed in frames. Decompresses only the frames that a range needs, and caches the latest ones.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/base/zstd.hpp"
#include "runtime/dataset/recycled_buffer.hpp"
#include "runtime/dataset/tar/seek_table.hpp"
#include "runtime/storage/readable.hpp"

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace penstock {

/// Whether a shard's name says that the shard is compressed with zstd.
[[nodiscard]] bool is_zstd_name(std::string_view name) noexcept;

/// Reads the frames of a file from its seek table. Refuses what seek_table_bytes, parse_seek_table and the file's read() refuse.
result<std::vector<zstd_frame>> read_frames(readable& file);

/// Caches the latest frames, up to 256 frames and 16 MiB, or a single larger frame. Not thread-safe.
class frame_reader {
 public:
  /// Loads libzstd. Refuses (errc::config) if libzstd is missing. Without this call, the first read() loads it.
  result<void> open();
  /// Fills `into` from byte `at` of the archive. The frames must cover that range. `number` identifies the file.
  /// Refuses what the file's read() refuses, and (errc::io) frames that cannot be decompressed or whose contents do not
  /// match the seek table.
  result<void> read(std::uint64_t number, readable& file, std::span<const zstd_frame> frames, std::uint64_t at, std::span<std::byte> into);
  [[nodiscard]] bool keeps(std::uint64_t number, const zstd_frame& frame) { return find(number, frame) != kept_.end(); }

 private:
  struct kept_frame {
    std::uint64_t number = 0;
    zstd_frame frame;
    recycled_buffer contents;
    std::byte* begin = nullptr;
  };
  std::list<kept_frame>::iterator find(std::uint64_t number, const zstd_frame& frame);
  result<std::span<const std::byte>> contents_of(std::uint64_t number, readable& file, const zstd_frame& frame);
  result<void> decompress(readable& file, const zstd_frame& frame, std::byte* to);
  kept_frame make_room(std::uint64_t bytes);

  std::optional<zstd_codec> zstd_;
  recycled_buffer compressed_;
  std::list<kept_frame> kept_;  ///< most recently used first
  std::uint64_t kept_bytes_ = 0;
};

/// Where the frames that hold these ranges are in the file. Each frame is listed once.
std::vector<byte_range> compressed_ranges(std::span<const zstd_frame> frames, std::span<const byte_range> ranges);

/// The archive in a compressed file, readable like a plain one. Used to index and to repack it.
class zstd_archive final : public readable {
 public:
  /// The frames must outlive it.
  zstd_archive(std::shared_ptr<readable> file, std::span<const zstd_frame> frames) : file_(std::move(file)), frames_(frames) {}

  [[nodiscard]] std::uint64_t bytes() const noexcept override {
    return frames_.empty() ? 0 : frames_.back().archive_at + frames_.back().archive_bytes;
  }
  result<void> read(std::uint64_t at, std::span<std::byte> into) override;

 private:
  std::shared_ptr<readable> file_;
  std::span<const zstd_frame> frames_;
  frame_reader reader_;
};

}  // namespace penstock
