// The orders of an epoch other than the shuffle of all samples: [sampler] kind = "weighted", "balanced", "subset" and
// "window". Used by plan; made by runtime/dataset/sampling.hpp.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace penstock {

/// Which sample is at each position of an epoch: a pure function of (seed, epoch, position). Immutable, thread-safe;
/// O(1) for each position, so a stream can resume at any position without delay.
class sample_order {
 public:
  sample_order() = default;
  sample_order(const sample_order&) = delete;
  sample_order& operator=(const sample_order&) = delete;
  virtual ~sample_order();

  /// Positions of an epoch, for all ranks together.
  [[nodiscard]] virtual std::uint64_t positions() const noexcept = 0;
  /// Replaces each position in `places` (below positions()) by its sample.
  virtual void to_samples(std::uint64_t seed, std::uint64_t epoch, std::span<std::uint64_t> places) const = 0;
};

/// Draws with replacement: sample i in proportion to weights[i]. Takes 16 bytes per sample. `positions` 0: as many as
/// there are weights. Refuses (errc::dataset) a weight that is negative, infinite or not a number, with its index; and
/// weights that are all zero.
result<std::shared_ptr<const sample_order>> weighted_order(std::span<const double> weights,
                                                           std::uint64_t positions);

/// Every class that has samples occurs equally often: in every prefix of an epoch, the counts differ by at most one.
/// Each class runs through its samples in its own order, and then starts over in a new one. `class_of[i]` is the class
/// of sample i; a sample of no_class is never used. `positions` 0: as many as there are samples with a class. Takes 8
/// bytes per sample. Refuses (errc::dataset) a list without any class.
inline constexpr std::uint32_t no_class = 0xffff'ffff;
result<std::shared_ptr<const sample_order>> balanced_order(std::span<const std::uint32_t> class_of,
                                                           std::uint64_t positions);

/// Delivers only these samples, in the order of the list or shuffled differently each epoch. An index that is listed
/// twice is delivered twice in an epoch. Refuses (errc::dataset) an empty list, and an index that is not below
/// `samples`, with its position in the list.
result<std::shared_ptr<const sample_order>> subset_order(std::vector<std::uint64_t> indices,
                                                         std::uint64_t samples, bool shuffle);

/// Delivers each sample once per epoch, moved by less than `window` positions. Windows of 1 and 2 keep the order.
std::shared_ptr<const sample_order> window_order(std::uint64_t samples, std::uint64_t window);

/// A window order with the shards in a new order each epoch. Shard s has the samples from ends[s - 1] (0 for the first
/// shard) to ends[s]. The window is as large as `shards` average shards.
std::shared_ptr<const sample_order> window_of_shards_order(std::vector<std::uint64_t> ends,
                                                           std::uint32_t shards);

}  // namespace penstock
