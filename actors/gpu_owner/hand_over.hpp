// Where the GPU owner puts finished batches and the consumer takes them: a queue bounded by the device's
// buffers, since every batch in it holds one. Thread-safe.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/device/transfer_plan.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

namespace penstock::gpu_owner {

/// A batch that lies in a device buffer, complete.
struct ready_batch {
  std::uint64_t upload = 0;  ///< names it to the scheduler
  std::uint64_t seek_number = 0;  ///< grows with every seek: a batch of an earlier one is not wanted any more
  stream_position position = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint32_t buffer = 0;
  std::vector<std::uint64_t> samples;  ///< of the rows
  std::vector<std::byte> records;      ///< the slot's record tensors, one after the other, rows back to back
  device::batch_extents extents = {};  ///< of a batch of variable size
};

class hand_over {
 public:
  struct stream_ended {};
  using taken = std::variant<ready_batch, stream_ended, failure>;

  // The owner's and the session's side.
  void put(std::vector<ready_batch> batches);
  /// Appends the buffers that the consumer gave back since the last call.
  void take_returned(std::vector<std::uint32_t>& to);
  /// After what is queued there is nothing more, as far as this seek goes.
  void finish(std::uint64_t seek_number);
  /// Ends at once: take() gives stream_ended, whatever is queued.
  void stop();
  /// Ends at once with an error. The first error stays.
  void fail(failure why);

  // The consumer's side.
  /// Waits for the next batch.
  taken take();
  /// The same, not for ever: nothing when the time is over.
  std::optional<taken> take_until(steady_time deadline);
  /// Whether take() would give a batch at once.
  [[nodiscard]] bool has_batch() const;
  /// The consumer is done with a buffer. True if the owner has to be told that there are some: once for all
  /// that come before it takes them.
  [[nodiscard]] bool give_back(std::uint32_t buffer);
  /// The stream goes on elsewhere. Gives everything that is queued: the caller releases the buffers.
  std::vector<ready_batch> begin_seek(std::uint64_t seek_number);
  /// How long take() has waited in all.
  [[nodiscard]] nanoseconds waited() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ready_batch> queue_;
  std::vector<std::uint32_t> returned_;  // at most the device's buffers
  std::optional<failure> failure_;
  nanoseconds waited_{0};
  std::uint64_t seek_number_ = 0;
  bool finished_ = false;
  bool stopped_ = false;
};

}  // namespace penstock::gpu_owner
