// The orders of an epoch besides the shuffle of all samples: [sampler] kind = "weighted", "balanced", "subset" and
// "window". Used by plan; made by runtime/dataset/sampling.hpp.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace penstock {

/// Which sample is at each position of an epoch: a pure function of (seed, epoch, position). Immutable,
/// thread-safe; O(1) for each position, so a stream resumes anywhere at once.
class sample_order {
 public:
  sample_order() = default;
  sample_order(const sample_order&) = delete;
  sample_order& operator=(const sample_order&) = delete;
  virtual ~sample_order();

  /// In an epoch, of all ranks together.
  [[nodiscard]] virtual std::uint64_t positions() const noexcept = 0;
  /// Replaces each position, below positions(), by its sample.
  virtual void to_samples(std::uint64_t seed, std::uint64_t epoch, std::span<std::uint64_t> places) const = 0;
};

/// Draws with replacement: sample i in proportion to weights[i]. 16 bytes for each sample. `positions` 0: as many
/// as there are weights. Refuses (errc::dataset), with the sample's index, a weight that is negative, infinite or
/// not a number; and weights that are all zero.
result<std::shared_ptr<const sample_order>> weighted_order(std::span<const double> weights,
                                                           std::uint64_t positions);

/// All classes that have samples equally often: in every prefix of an epoch, their counts differ by at most one.
/// Each class walks its samples in its own order and begins the next round of them when it ends.
/// `class_of[i]` is the class of sample i; 8 bytes for each sample. Refuses (errc::dataset) no samples.
result<std::shared_ptr<const sample_order>> balanced_order(std::span<const std::uint32_t> class_of,
                                                           std::uint64_t positions);

/// Only these samples, in the order of the list or shuffled differently each epoch. An index that is listed twice is
/// delivered twice in an epoch. Refuses (errc::dataset) an empty list, and, with its position in the list, an index that
/// is not below `samples`.
result<std::shared_ptr<const sample_order>> subset_order(std::vector<std::uint64_t> indices,
                                                         std::uint64_t samples, bool shuffle);

/// Each sample once an epoch, less than `window` positions from its own. Windows of 1 and 2 keep the order.
std::shared_ptr<const sample_order> window_order(std::uint64_t samples, std::uint64_t window);

/// The same among shards in an order that is new each epoch: shard s has the samples from ends[s - 1] (0 for the
/// first) to ends[s]. The window is as large as `shards` average shards.
std::shared_ptr<const sample_order> window_of_shards_order(std::vector<std::uint64_t> ends,
                                                           std::uint32_t shards);

}  // namespace penstock
