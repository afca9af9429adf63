// The queue of finished batches from the GPU owner to the consumer, bounded by the device's buffers, since
// every batch in it holds one. Thread-safe.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/upload_order.hpp"
#include "runtime/device/transfer_plan.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

namespace penstock::gpu_owner {

/// A complete batch in a device buffer.
struct ready_batch {
  std::uint64_t upload = 0;       ///< identifies it to the scheduler
  std::uint64_t seek_number = 0;  ///< grows with every seek: batches of earlier seeks are dropped
  stream_position position = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint32_t buffer = 0;
  std::vector<std::uint64_t> samples;  ///< of the rows
  std::vector<std::byte> records;      ///< the slot's record tensors, one after the other, rows back to back
  device::batch_extents extents = {};  ///< for a batch of variable size
  std::optional<job_upload> job = {};  ///< it is the result of a job, whose number is `position`
  std::optional<failure> refused =
      {};  ///< of a job's result: it has no buffer, because the device has none for it
};

class hand_over {
 public:
  struct stream_ended {};
  using taken = std::variant<ready_batch, stream_ended, failure>;

  // For the owner and the session.
  void put(std::vector<ready_batch> batches);
  /// Appends the buffers that the consumer has returned since the last call.
  void take_returned(std::vector<std::uint32_t>& to);
  /// No batches of this seek follow the queued ones.
  void finish(std::uint64_t seek_number);
  /// Ends at once: take() returns stream_ended, whatever is queued.
  void stop();
  /// Ends at once with an error. The first error is kept.
  void fail(failure why);

  // For the consumer.
  /// Waits for the next batch.
  taken take();
  /// The same with a deadline; empty when it has passed.
  std::optional<taken> take_until(steady_time deadline);
  /// How it ended, by stop() or fail(); none: it has not.
  [[nodiscard]] std::optional<taken> ended() const;
  /// Whether take() would return a batch at once.
  [[nodiscard]] bool has_batch() const;
  /// Waits until take() would return at once; false after that time.
  [[nodiscard]] bool wait_for_batch(nanoseconds at_most);
  /// The consumer returns a buffer. True if the owner has to be notified: once for all buffers that come
  /// before it takes them.
  [[nodiscard]] bool give_back(std::uint32_t buffer);
  /// The stream seeks. Returns everything that is queued: the caller releases the buffers.
  std::vector<ready_batch> begin_seek(std::uint64_t seek_number);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ready_batch> queue_;
  std::vector<std::uint32_t> returned_;  // at most the device's buffers
  std::optional<failure> failure_;
  std::uint64_t seek_number_ = 0;
  bool finished_ = false;
  bool stopped_ = false;
};

}  // namespace penstock::gpu_owner
