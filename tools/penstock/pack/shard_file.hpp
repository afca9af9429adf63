// A shard that `penstock pack` writes, plain or as seekable zstd. It has another name until it is complete.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/tar/frame_writer.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::pack {

/// Move-only.
class shard_file {
 public:
  /// `frame_size`: how much a frame holds; 0: not compressed. Overwrites what a killed run may have left. Refuses (errc::io) what the
  /// system refuses, and (errc::config) if libzstd is missing.
  static result<shard_file> create(std::string path, std::uint64_t frame_size);

  /// Appends to the archive. The bytes of one call stay in one frame; if they do not fit the current frame, they begin a new one.
  result<void> add(std::string_view bytes);
  /// Writes everything to disk and gives the file its name. Returns the file's size in bytes.
  result<std::uint64_t> finish();

  [[nodiscard]] std::uint64_t archive_bytes() const noexcept { return archive_bytes_; }

 private:
  [[nodiscard]] std::string part() const { return path_ + ".part"; }
  [[nodiscard]] tl::unexpected<failure> failed(std::string_view what, int os_code) const;
  void end_frame();
  result<void> flush();

  std::string path_;
  std::uint64_t frame_size_ = 0;
  std::optional<frame_writer> frames_;
  unique_fd file_;
  std::string frame_;    ///< contents of the frame that is not complete
  std::string pending_;  ///< not written to the file yet
  std::uint64_t archive_bytes_ = 0;
  std::uint64_t file_bytes_ = 0;
};

}  // namespace penstock::pack
