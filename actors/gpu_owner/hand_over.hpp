// The queue of finished batches from the GPU owner to the consumer. Every batch in it holds a device buffer,
// so their number bounds the queue. Thread-safe.
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
  std::uint64_t upload = 0;       ///< identifies the batch to the scheduler
  std::uint64_t seek_number = 0;  ///< increases with every seek: batches of earlier seeks are dropped
  stream_position position = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint32_t buffer = 0;
  std::vector<std::uint64_t> samples;  ///< the samples in its rows
  std::vector<std::byte> records;      ///< the slot's record tensors, one after another, rows back to back
  device::batch_extents extents = {};  ///< set for a batch of variable size
  std::optional<job_upload> job = {};  ///< set if this is the result of a job, whose number is `position`
  std::optional<failure> refused =
      {};  ///< why a job's result has no buffer: the device lacked memory for the ring
};

class hand_over {
 public:
  struct stream_ended {};
  using taken = std::variant<ready_batch, stream_ended, failure>;

  // For the owner and the session.
  void put(std::vector<ready_batch> batches);
  /// Appends the buffers that the consumer has returned since the last call.
  void take_returned(std::vector<std::uint32_t>& to);
  /// Call when no batches of this seek follow the queued ones.
  void finish(std::uint64_t seek_number);
  /// Ends the queue at once: take() returns stream_ended, whatever is queued.
  void stop();
  /// Ends the queue at once with an error. Keeps the first error.
  void fail(failure why);

  // For the consumer.
  /// Waits for the next batch.
  taken take();
  /// Like take(), but returns empty after the deadline.
  std::optional<taken> take_until(steady_time deadline);
  /// How stop() or fail() ended the queue; empty: it has not ended.
  [[nodiscard]] std::optional<taken> ended() const;
  /// Whether take() would return a batch at once.
  [[nodiscard]] bool has_batch() const;
  /// Waits until take() would return at once; false if that takes longer.
  [[nodiscard]] bool wait_for_batch(nanoseconds at_most);
  /// Call when the consumer returns a buffer. True: notify the owner; false: an earlier call's notification
  /// covers this buffer as well.
  [[nodiscard]] bool give_back(std::uint32_t buffer);
  /// Call when the stream seeks. Returns all queued batches: the caller releases their buffers.
  std::vector<ready_batch> begin_seek(std::uint64_t seek_number);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ready_batch> queue_;
  std::vector<std::uint32_t> returned_;  // at most one per device buffer
  std::optional<failure> failure_;
  std::uint64_t seek_number_ = 0;
  bool finished_ = false;
  bool stopped_ = false;
};

}  // namespace penstock::gpu_owner
