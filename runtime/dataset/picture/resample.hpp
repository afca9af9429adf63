// The antialiased resize: Pillow's BILINEAR with a box, as a stream. Takes rows of a decoded window and
// writes finished rows to their place in the slot, already oriented according to EXIF. Used by the picture
// pipeline.
#pragma once

#include "runtime/dataset/picture/box.hpp"
#include "runtime/dataset/picture/orientation.hpp"
#include "runtime/dataset/picture/row_sink.hpp"
#include "runtime/dataset/recycled_buffer.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

/// One side of a resize: `out` pixels from the interval [begin, end) of a side that is `full` pixels long, in
/// the same (possibly DCT-scaled, hence fractional) coordinates.
struct axis_request {
  double begin = 0;
  double end = 0;
  std::uint32_t full = 0;
  std::uint32_t out = 0;
};

/// The source pixels and weights of each result pixel along one side: consecutive pixels from first[i], with
/// non-negative weights that add up to exactly 1 << shift. This is Pillow's triangle filter. It reaches as many
/// source pixels to each side as the reduction factor, and at least one. It can extend beyond the box into the
/// surrounding picture, but not beyond the picture's edge.
struct axis_weights {
  std::uint32_t taps = 0;            ///< weights stored for every pixel: a multiple of 4, padded with zeros
  unsigned shift = 0;                ///< 14 .. 22: as large as 16-bit weights allow
  std::uint32_t source_begin = 0;    ///< first source pixel that has a weight
  std::uint32_t source_end = 0;      ///< one past the last source pixel
  std::vector<std::uint32_t> first;  ///< relative to source_begin
  std::vector<std::uint32_t> count;  ///< weights that are not padding, at least 1
  std::vector<std::int16_t> weights;

  /// Uses only + - * / and floor on doubles, so results have the same bits on every machine. 0 <= begin < end <= full,
  /// out >= 1. first[i] + taps is at most 3 pixels past source_end - source_begin; a row's padding must cover that.
  void compute(const axis_request& request);

 private:
  std::vector<double> exact_;
};

/// Resizes one picture at a time and reuses its memory for the next. Uses 8-bit fixed point: the sums of both passes
/// are rounded to 8 bits as in Pillow. Results differ from Pillow's by at most one level, because weights have 16 bits
/// instead of 22. They are the same on all machines.
class resampler final : public row_sink {
 public:
  struct request {
    axis_request x;  ///< in stored (and DCT-scaled) pixels; out: width of the result before it is turned
    axis_request y;
    orientation turn;  ///< from the stored to the displayed picture
  };

  /// Starts a picture. Writes RGB rows without gaps to `out`, which has the size of the turned result. Needs the source
  /// rows y().source_begin .. source_end, each from column x().source_begin.
  void begin(const request& what, std::span<std::uint8_t> out);

  void take_row(const std::uint8_t* rgbx) noexcept override;

  /// Whether every row of the result has been written.
  [[nodiscard]] bool complete() const noexcept { return next_out_ == y_.first.size(); }

  [[nodiscard]] const axis_weights& x() const noexcept { return x_; }
  [[nodiscard]] const axis_weights& y() const noexcept { return y_; }

 private:
  [[nodiscard]] std::uint8_t* ring_row(std::uint32_t source_row) noexcept {
    return ring_rows_ + (source_row % ring_size_) * ring_stride_;
  }
  void emit_row() noexcept;
  void place_turned(const std::uint8_t* row) noexcept;

  axis_weights x_;
  axis_weights y_;
  orientation turn_;
  std::span<std::uint8_t> out_;
  std::uint32_t width_ = 0;        ///< width of the result before it is turned
  std::uint32_t next_source_ = 0;  ///< relative to y_.source_begin
  std::uint32_t next_out_ = 0;
  // Horizontally resized rows, only as many as one result row needs.
  recycled_buffer ring_;
  std::uint8_t* ring_rows_ = nullptr;
  std::size_t ring_stride_ = 0;
  std::uint32_t ring_size_ = 0;
  std::vector<const std::uint8_t*> tap_rows_;
  std::vector<std::uint8_t> finished_row_;  ///< before turning
};

}  // namespace penstock
