// The weighted order: Walker's alias table, built by Vose's method ("A linear algorithm for generating random
// numbers with a given distribution", IEEE TSE 1991).
#include "runtime/dataset/order/philox.hpp"
#include "runtime/dataset/order/sample_order.hpp"
#include "runtime/dataset/order/wide_math.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

class alias_order final : public sample_order {
 public:
  alias_order(std::span<const double> weights, double total, std::uint64_t positions)
      : positions_(positions), columns_(weights.size()) {
    build(weights, total);
  }

  [[nodiscard]] std::uint64_t positions() const noexcept override { return positions_; }

  void to_samples(std::uint64_t seed, std::uint64_t epoch, std::span<std::uint64_t> places) const override {
    for (std::uint64_t& place : places) {
      const philox_words words = philox_stream(random_domain::weighted, seed, epoch, place).block_at(0);
      const std::uint64_t own = scaled_below(philox_stream::as_u64(words, 0), columns_.size());
      const column& drawn = columns_[own];
      place = (philox_stream::as_u64(words, 1) >> 11U) < drawn.own_share ? own : drawn.other;
    }
  }

 private:
  struct column {
    std::uint64_t own_share = 0;  ///< in units of 2^-53
    std::uint64_t other = 0;
  };
  static constexpr double whole = 0x1p53;

  /// No expression adds to a product, so that no compiler can fuse the two
  /// operations and round differently. Thus the table is the same on every machine.
  void build(std::span<const double> weights, double total) {
    const auto count = static_cast<double>(weights.size());
    std::vector<double> share(weights.size());  // relative to the average, so their mean is 1
    std::vector<std::uint64_t> small;
    std::vector<std::uint64_t> large;
    for (std::uint64_t i = 0; i < weights.size(); ++i) {
      share[i] = weights[i] / total * count;
      (share[i] < 1 ? small : large).push_back(i);
    }
    while (!small.empty() && !large.empty()) {
      const std::uint64_t less = small.back();
      const std::uint64_t more = large.back();
      small.pop_back();
      columns_[less] = {static_cast<std::uint64_t>(share[less] * whole), more};
      share[more] -= 1 - share[less];
      if (share[more] < 1) {
        large.pop_back();
        small.push_back(more);
      }
    }
    // Rounding may leave columns over. They get probability 1, except those of weight 0, which must never be
    // drawn.
    const auto heaviest = static_cast<std::uint64_t>(std::ranges::max_element(weights) - weights.begin());
    for (const auto& rest : {small, large})
      for (const std::uint64_t i : rest)
        columns_[i] = weights[i] > 0 ? column{static_cast<std::uint64_t>(whole), i} : column{0, heaviest};
  }

  std::uint64_t positions_;
  std::vector<column> columns_;
};

}  // namespace

result<std::shared_ptr<const sample_order>> weighted_order(std::span<const double> weights,
                                                           std::uint64_t positions) {
  double heaviest = 0;
  for (std::uint64_t i = 0; i < weights.size(); ++i) {
    const double weight = weights[i];
    if (!std::isfinite(weight) || weight < 0)
      return refuse(errc::dataset, "the weight of sample {} is {}: weights must be finite numbers, 0 or more",
                    i, weight);
    heaviest = std::max(heaviest, weight);
  }
  if (heaviest == 0)
    return refuse(errc::dataset, "all {} weights are 0: there is nothing to draw", weights.size());
  // Weights relative to the heaviest one, so that their sum cannot become infinite.
  std::vector<double> relative(weights.begin(), weights.end());
  double total = 0;
  for (double& weight : relative) {
    weight /= heaviest;
    total += weight;
  }
  return std::make_shared<const alias_order>(relative, total, positions == 0 ? weights.size() : positions);
}

}  // namespace penstock
