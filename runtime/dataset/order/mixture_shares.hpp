// How a mixture divides an epoch among its datasets: converts weights to whole
// numbers, and the numbers to one period of a pattern. Pure. Used by mixture_order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

/// Weights as whole numbers without a common divisor: of `sum` consecutive positions, dataset d has parts[d].
struct mixture_shares {
  std::vector<std::uint32_t> parts;
  std::uint32_t sum = 0;
  bool exact = true;

  bool operator==(const mixture_shares&) const = default;
};

inline constexpr std::uint32_t shares_sum_max = 1'000'000;

/// Exact if the weights, as decimal numbers, have a common denominator of at most shares_sum_max. Otherwise rounded to
/// that denominator; a weight above 0 keeps at least one part. The weights must be finite and not negative, and at
/// least one must be above 0.
mixture_shares shares_of(std::span<const double> weights);

/// Which dataset has each position of one period. In every prefix of the repeated period, the number of a dataset's
/// positions differs from its share by less than one.
class mixture_pattern {
 public:
  /// Computes only the first `length` positions if a period is longer.
  mixture_pattern(const mixture_shares& shares, std::uint64_t length);

  struct turn {
    std::uint32_t dataset = 0;
    std::uint64_t before = 0;  ///< earlier positions of the same dataset
  };
  /// O(1). position < `length` (constructor).
  [[nodiscard]] turn at(std::uint64_t position) const noexcept;
  /// Positions of each dataset among the first `length`. O(period).
  [[nodiscard]] std::vector<std::uint64_t> counts(std::uint64_t length) const;
  [[nodiscard]] std::uint64_t entries() const noexcept { return datasets_.size(); }

 private:
  mixture_shares shares_;
  std::vector<std::uint16_t> datasets_;
  std::vector<std::uint32_t> before_;  // within this period
};

}  // namespace penstock
