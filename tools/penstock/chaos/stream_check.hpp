// The checker of `penstock chaos`: compares the batches delivered in a disturbed run with those of an
// undisturbed run. It does not know ledgers, leases or restarts, only the batches in the sink's journal and what the session reported
// meanwhile. Pure.
//
// With one owner, the stream is simple: every batch once, in order. An owner in its own process may die after
// its sink has taken batches that it has not acknowledged yet; its successor delivers those again (rules S15
// and O7). So the rules are:
//
//   - Within one owner's life, batches come in ascending order, none twice.
//   - A new owner begins anywhere after the batches that the session had already reported as delivered
//     (promised), and no later than at the first batch that no sink has taken. Batches that it skips are
//     lost.
//   - A batch repeated by a new owner has the same samples and bytes as before, and counts once. A promised
//     batch must not be repeated: it would be delivered twice.
//   - Once a new owner has delivered, its predecessor must not; batches that it still delivers are stale.
//   - When the session reports a batch as delivered, the journal already contains it; otherwise it is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace penstock::cli {

/// A delivered batch.
struct delivered_batch {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::vector<std::uint64_t> samples;
  std::uint64_t digest = 0;  ///< over the batch's bytes on the device
  std::uint32_t owner = 1;   ///< which of the run's owners delivered the batch: 1, 2, ...
};

/// The session reported the first `delivered` batches of the stream as delivered when the journal held at
/// most `taken` batches.
struct delivery_promise {
  std::size_t taken = 0;
  std::uint64_t delivered = 0;
};

struct stream_faults {
  std::uint64_t lost = 0;          ///< samples that the undisturbed run delivered and this one did not
  std::uint64_t duplicated = 0;    ///< samples delivered a second time in their epoch
  std::uint64_t out_of_order = 0;  ///< batches that came after a later one
  std::uint64_t stale =
      0;  ///< batches with other bytes or foreign samples, or from an owner that has been replaced
  [[nodiscard]] bool none() const noexcept { return lost + duplicated + out_of_order + stale == 0; }
};

class stream_check {
 public:
  /// Takes the undisturbed run's batches in the order of delivery, and checks them: each sample at most once
  /// per epoch, in order.
  explicit stream_check(std::vector<delivered_batch> undisturbed);
  [[nodiscard]] const stream_faults& of_undisturbed() const noexcept { return own_; }

  /// Checks a disturbed run of the same stream, with the session's reports in order.
  [[nodiscard]] stream_faults check(const std::vector<delivered_batch>& disturbed,
                                    const std::vector<delivery_promise>& promises = {}) const;
  /// How many batches a new owner delivered again, as it is allowed to.
  [[nodiscard]] static std::uint64_t replays_of(const std::vector<delivered_batch>& batches);

 private:
  using place = std::pair<std::uint64_t, std::uint64_t>;  // epoch, sequence

  [[nodiscard]] stream_faults order_of(const std::vector<delivered_batch>& batches,
                                       const std::vector<delivery_promise>& promises) const;
  [[nodiscard]] std::uint64_t broken_promises(const std::vector<delivered_batch>& batches,
                                              const std::vector<delivery_promise>& promises) const;
  void compare(const delivered_batch& batch, stream_faults& found) const;

  std::map<place, delivered_batch> expected_;
  std::map<place, std::uint64_t> number_;  // the batch's number in the whole stream, from 0
  stream_faults own_;
};

}  // namespace penstock::cli
