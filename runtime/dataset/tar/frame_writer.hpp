// Makes a file in zstd's seekable format: frames, and the table of them. Used by `penstock pack` and tests.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/base/zstd.hpp"
#include "runtime/dataset/tar/seek_table.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Appends to a string, which the caller writes to the file. Move-only.
class frame_writer {
 public:
  /// `level`: zstd's. Refuses (errc::config) if libzstd is missing.
  static result<frame_writer> open(int level);

  /// Appends a frame with these contents, or several if they are longer than 16 MiB.
  void append_frame(std::string& to, std::string_view contents);
  /// Appends the table that ends the file.
  void append_table(std::string& to) const { append_seek_table(to, frames_); }

 private:
  frame_writer(zstd_codec with, int level) : zstd_(std::move(with)), level_(level) {}

  zstd_codec zstd_;
  int level_;
  std::vector<zstd_frame> frames_;
};

}  // namespace penstock
