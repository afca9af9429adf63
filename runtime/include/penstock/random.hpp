// The only source of randomness that a dataset may use: counter-based, so that a sample's bytes depend only
// on (seed, epoch, sample index, draw number), not on the worker, the other samples of the batch or crashes.
// Used by datasets.
#pragma once

#include <penstock/export.hpp>

#include <array>
#include <cstdint>

namespace penstock {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Cheap to construct
/// and to copy. Has no state outside the object. Satisfies std::uniform_random_bit_generator, but prefer the
/// members below: the distributions of the standard library differ between vendors.
class PENSTOCK_API random_source {
 public:
  using result_type = std::uint32_t;

  random_source(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) noexcept;

  /// The next 32 random bits.
  result_type operator()() noexcept;
  /// Uniform in [0, 1), with all 53 bits of a double.
  double uniform() noexcept;
  double uniform(double low, double high) noexcept { return low + (high - low) * uniform(); }
  /// Uniform in [0, bound), without bias. bound > 0.
  std::uint32_t below(std::uint32_t bound) noexcept;

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xffffffffU; }

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  unsigned used_ = 4;
};

}  // namespace penstock
