// Running statistics of the values in samples, and the suspicious findings in each. Used by inspect, for
// samples of plain numbers.
#pragma once

#include "tools/penstock/dataset/inspection.hpp"

#include <penstock/tensor.hpp>

#include <cstddef>
#include <limits>
#include <span>

namespace penstock::inspected {

/// The number of samples to read, evenly spread.
inline constexpr std::uint64_t samples_looked_at = 4096;

class value_counter {
 public:
  explicit value_counter(dtype type) : type_(type) {}

  /// Counts a sample's values. Returns what is suspicious about them, or an empty text.
  std::string take(std::span<const std::byte> sample);
  [[nodiscard]] value_summary summary() const;

 private:
  dtype type_;
  double least_ = std::numeric_limits<double>::infinity();
  double most_ = -std::numeric_limits<double>::infinity();
  double sum_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t not_finite_ = 0;
  std::uint64_t samples_ = 0;
};

}  // namespace penstock::inspected
