#include "runtime/dataset/picture/resample.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/picture/resample_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace penstock {
namespace {

/// The part of the source under the triangle of one pixel of the result.
struct triangle {
  double centre;
  double low;   ///< first source pixel
  double high;  ///< one past the last source pixel
};

}  // namespace

void axis_weights::compute(const axis_request& request) {
  // Pillow's precompute_coeffs (src/libImaging/Resample.c): the centre and the width of each result pixel's
  // support.
  const double scale = (request.end - request.begin) / request.out;
  const double support = std::max(scale, 1.0);
  const auto triangle_of = [&](std::uint32_t i) {
    const double centre = request.begin + (i + 0.5) * scale;
    return triangle{centre, std::max(std::floor(centre - support + 0.5), 0.0),
                    std::min(std::floor(centre + support + 0.5), static_cast<double>(request.full))};
  };
  source_begin = static_cast<std::uint32_t>(triangle_of(0).low);
  source_end = static_cast<std::uint32_t>(triangle_of(request.out - 1).high);
  first.resize(request.out);
  count.resize(request.out);
  exact_.clear();
  std::uint32_t widest = 1;
  double largest = 0;
  for (std::uint32_t i = 0; i < request.out; ++i) {
    const triangle t = triangle_of(i);
    first[i] = static_cast<std::uint32_t>(t.low) - source_begin;
    count[i] = static_cast<std::uint32_t>(t.high - t.low);
    widest = std::max(widest, count[i]);
    const std::size_t start = exact_.size();
    double sum = 0;
    for (std::uint32_t k = 0; k < count[i]; ++k) {
      exact_.push_back(std::max(0.0, 1.0 - std::abs((k + t.low - t.centre + 0.5) / support)));
      sum += exact_.back();
    }
    for (std::size_t k = start; k < exact_.size(); ++k) {
      exact_[k] /= sum;
      largest = std::max(largest, exact_[k]);
    }
  }
  // The largest shift for which the largest weight fits 16 bits; sums below 255 << 22 fit 32 bits.
  shift = 22;
  while (std::ldexp(largest, static_cast<int>(shift)) > 32000.0) --shift;

  taps = static_cast<std::uint32_t>(round_up(widest, 4));
  weights.assign(std::size_t{taps} * request.out, 0);
  const std::uint32_t source = source_end - source_begin;
  const double* exact = exact_.data();
  for (std::uint32_t i = 0; i < request.out; ++i) {
    // Near the far edge a pixel has fewer weights. Zeros are put before them, so that reads do not go beyond the edge.
    const std::uint32_t over = first[i] + taps > source ? std::min(first[i] + taps - source, first[i]) : 0;
    const std::uint32_t before = std::min(over, taps - count[i]);
    std::int16_t* const mine = weights.data() + std::size_t{taps} * i + before;
    // Round the running sum and not each weight. The weights
    // then add up exactly, and a uniform area stays uniform.
    double running = 0;
    std::int32_t placed = 0;
    for (std::uint32_t k = 0; k < count[i]; ++k) {
      running += *exact++;
      const bool last = k + 1 == count[i];
      const auto upto = last ? std::int32_t{1} << shift
                             : static_cast<std::int32_t>(std::ldexp(running, static_cast<int>(shift)) + 0.5);
      mine[k] = static_cast<std::int16_t>(upto - placed);
      placed = upto;
    }
    first[i] -= before;
    count[i] += before;
  }
}

void resampler::begin(const request& what, std::span<std::uint8_t> out) {
  PENSTOCK_CHECK(out.size() == std::size_t{what.x.out} * what.y.out * 3, "{} x {} pixels into {} bytes",
                 what.x.out, what.y.out, out.size());
  x_.compute(what.x);
  y_.compute(what.y);
  turn_ = what.turn;
  out_ = out;
  width_ = what.x.out;
  next_source_ = 0;
  next_out_ = 0;
  ring_size_ = y_.taps;
  ring_stride_ = round_up(std::size_t{width_} * 3 + resampled_padding, 64);
  ring_rows_ = ring_.take_u8(ring_stride_ * ring_size_);
  tap_rows_.resize(y_.taps);
  finished_row_.resize(std::size_t{width_} * 3);
}

void resampler::take_row(const std::uint8_t* rgbx) noexcept {
  best_kernels().horizontal(rgbx, x_.first.data(), x_.weights.data(), x_.taps, x_.shift, width_,
                            ring_row(next_source_));
  ++next_source_;
  while (next_out_ < y_.first.size() && y_.first[next_out_] + y_.count[next_out_] <= next_source_) emit_row();
}

void resampler::emit_row() noexcept {
  const std::uint32_t count = y_.count[next_out_];
  for (std::uint32_t k = 0; k < count; ++k) tap_rows_[k] = ring_row(y_.first[next_out_] + k);
  // Round an odd count up with a weight of 0; the rest of the table's padding is not needed.
  const std::uint32_t even = (count + 1) / 2 * 2;
  if (even != count) tap_rows_[count] = tap_rows_[count - 1];
  const std::size_t bytes = std::size_t{width_} * 3;
  const bool straight = !turn_.transposed && !turn_.mirrored_x;
  const auto seen_y = turn_.mirrored_y ? y_.first.size() - 1 - next_out_ : next_out_;
  std::uint8_t* const row = straight ? out_.data() + seen_y * bytes : finished_row_.data();
  best_kernels().vertical(tap_rows_.data(), y_.weights.data() + std::size_t{y_.taps} * next_out_, even,
                          y_.shift, bytes, row);
  if (!straight) place_turned(row);
  ++next_out_;
}

void resampler::place_turned(const std::uint8_t* row) noexcept {
  const std::size_t height = y_.first.size();
  const std::size_t y = turn_.mirrored_y ? height - 1 - next_out_ : next_out_;
  for (std::uint32_t i = 0; i < width_; ++i, row += 3) {
    const std::size_t x = turn_.mirrored_x ? width_ - 1 - i : i;
    std::memcpy(out_.data() + (turn_.transposed ? x * height + y : y * width_ + x) * 3, row, 3);
  }
}

}  // namespace penstock
