// Cuts out the part of a JPEG that a window needs and makes a small JPEG of it. Requires restart markers. libjpeg then
// reads no entropy-coded data of the rows above the window or of the columns next to it. Used by the picture pipeline.
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

  /// Decoding the part gives the same pixels as decoding the file. Empty if cutting saves nothing. Also empty unless
  /// the file is sequential, 8 bits, in one scan, with markers in order, an end-of-image marker, and a restart interval
  /// that covers whole rows of MCUs or divides a row evenly; the whole file is then decoded, or refused. The parts that
  /// it skips are not checked. `request` must have the rule window_only. Throws only std::bad_alloc.
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
