// Cuts the part of a JPEG with restart markers that a window needs into a small JPEG of its own, so that libjpeg reads
// no entropy-coded data of the rows above the window and of the columns next to it. Used by the picture pipeline.
#pragma once

#include "runtime/dataset/picture/jpeg.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock {

class restart_cutter {
 public:
  struct part {
    std::span<const std::byte> file;  ///< a JPEG; valid until the next call
    jpeg_request request;             ///< the window in it
  };

  /// Decoding the part gives the bits that decoding the file gives. Empty if it saves nothing, or if the file is not
  /// sequential, 8 bits, in one scan, with markers in order, an interval of whole rows of MCUs or of a whole
  /// fraction of a row, and an end-of-image marker: the file as a whole is decoded then, or refused. What it skips
  /// is not checked. `request` has the rule window_only. Throws std::bad_alloc only.
  std::optional<part> cut(std::span<const std::byte> file, const jpeg_request& request);

 private:
  struct interval {
    std::size_t begin = 0, end = 0;
  };

  bool find_intervals(std::span<const std::uint8_t> file, std::size_t at, std::size_t needed,
                      std::size_t all);

  std::vector<interval> intervals_;
  recycled_buffer file_;
};

}  // namespace penstock
