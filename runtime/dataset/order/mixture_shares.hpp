// How a mixture divides an epoch among its datasets: weights become whole numbers, and those one period of a pattern.
// Pure. Used by mixture_order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

/// Weights as whole numbers without a common divisor: of `sum` positions in a row, dataset d has parts[d].
struct mixture_shares {
  std::vector<std::uint32_t> parts;
  std::uint32_t sum = 0;
  bool exact = true;

  bool operator==(const mixture_shares&) const = default;
};

inline constexpr std::uint32_t shares_sum_max = 1'000'000;

/// Exact if the weights, as the decimal numbers that they were written as, have a common denominator of at most
/// shares_sum_max; else rounded to that one, and a weight above 0 keeps at least one part. Needs finite weights that
/// are not negative, at least one of them above 0.
mixture_shares shares_of(std::span<const double> weights);

/// Which dataset has each position of one period. In every prefix of the repeated period, each dataset has less than
/// one position more or less than its share.
class mixture_pattern {
 public:
  /// Only the first `length` positions, if that is less than a period.
  mixture_pattern(const mixture_shares& shares, std::uint64_t length);

  struct turn {
    std::uint32_t dataset = 0;
    std::uint64_t before = 0;  ///< positions of this dataset before this one
  };
  /// O(1). position < `length` of the constructor.
  [[nodiscard]] turn at(std::uint64_t position) const noexcept;
  /// Positions of each dataset among the first `length`. O(period).
  [[nodiscard]] std::vector<std::uint64_t> counts(std::uint64_t length) const;
  [[nodiscard]] std::uint64_t entries() const noexcept { return datasets_.size(); }

 private:
  mixture_shares shares_;
  std::vector<std::uint16_t> datasets_;
  std::vector<std::uint32_t> before_;  // in this period
};

}  // namespace penstock
