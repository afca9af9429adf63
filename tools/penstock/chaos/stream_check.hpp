// The checker of `penstock chaos`: holds what was delivered against what an undisturbed run delivered. It
// knows nothing of ledgers, leases or restarts - only batches as they came out. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace penstock::cli {

/// A batch as it was delivered.
struct delivered_batch {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::vector<std::uint64_t> samples;
  std::uint64_t digest = 0;  ///< over its bytes on the device
};

struct stream_faults {
  std::uint64_t lost = 0;          ///< samples that the undisturbed run delivered and this one did not
  std::uint64_t duplicated = 0;    ///< samples delivered a second time in their epoch
  std::uint64_t out_of_order = 0;  ///< batches that came after a later one
  std::uint64_t stale = 0;  ///< batches with the right samples and other bytes, or with foreign samples
  [[nodiscard]] bool none() const noexcept { return lost + duplicated + out_of_order + stale == 0; }
};

class stream_check {
 public:
  /// Takes the undisturbed run's batches, in the order in which they came. It is checked itself: each sample
  /// at most once an epoch, in order.
  explicit stream_check(std::vector<delivered_batch> undisturbed);
  [[nodiscard]] const stream_faults& of_undisturbed() const noexcept { return own_; }

  /// A disturbed run of the same stream.
  [[nodiscard]] stream_faults check(const std::vector<delivered_batch>& disturbed) const;

 private:
  using place = std::pair<std::uint64_t, std::uint64_t>;  // epoch, sequence

  [[nodiscard]] static stream_faults order_of(const std::vector<delivered_batch>& batches);

  std::map<place, delivered_batch> expected_;
  stream_faults own_;
};

}  // namespace penstock::cli
