// What a Batch holds: the ready batch, and where to return its buffer.
#pragma once

#include "actors/gpu_owner/hand_over.hpp"
#include "runtime/base/home_process.hpp"
#include "runtime/device/device.hpp"

#include <penstock/batch.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

namespace penstock {

/// Shared by a session and its batches. When the session is destroyed, batches that are still held become
/// unusable instead of dangling.
///
/// A buffer returns to the ring only once the device has recorded the work that must finish before the next
/// write. If a batch is destroyed while that is impossible (the program is capturing the legacy default
/// stream), it parks its buffer here; a later call returns the buffer once that is possible.
class batch_home {
 public:
  /// For a session whose device is not open yet: see open().
  batch_home() = default;
  /// For a pool of jobs: `what` and `whose` replace batch and session in messages.
  batch_home(std::string what, std::string whose) : what_(std::move(what)), whose_(std::move(whose)) {}
  batch_home(std::shared_ptr<device::device> device, std::function<void(std::uint32_t buffer)> give_back)
      : device_(std::move(device)), give_back_(std::move(give_back)) {}

  /// `buffers`: the number of buffers on the device.
  void open(std::shared_ptr<device::device> device, std::function<void(std::uint32_t buffer)> give_back,
            std::uint32_t buffers) {
    const std::lock_guard hold(mutex_);
    device_ = std::move(device);
    give_back_ = std::move(give_back);
    buffers_ = buffers;
    parked_.reserve(buffers);
  }

  /// Runs `use(device)` while keeping the session alive. Throws error (errc::usage) if the session is gone,
  /// and in a forked child of its process.
  template <class Use>
  auto with_device(Use use) {
    refuse_copies();
    const std::lock_guard hold(mutex_);
    if (!device_) refuse();
    return use(*device_);
  }
  /// Throws what with_device would throw.
  void refuse_if_gone() const {
    refuse_copies();
    if (gone_.load(std::memory_order_acquire)) refuse();
  }
  /// Whether this is a forked child of the process that made the object.
  [[nodiscard]] bool left() const noexcept { return process_.left(); }
  void refuse_copies() const { process_.require(what_); }
  /// Returns a buffer that no queued work uses.
  void give_back(std::uint32_t buffer) {
    refuse_copies();
    const std::lock_guard hold(mutex_);
    if (give_back_) give_back_(buffer);
  }
  /// Returns the buffer once the work queued on the streams so far is done. Throws error with the device's
  /// reason if it refuses; the caller then keeps the buffer.
  void release_after(std::uint32_t buffer, std::span<const stream_handle> streams);
  /// For the destructor of a batch: returns the buffer once the work queued on the legacy default stream is
  /// done, and parks it if the device refuses.
  void release_or_park(std::uint32_t buffer) noexcept;
  /// The next batch of the queue. Returns parked buffers before and during the wait. Throws error
  /// (errc::usage) when all buffers have been parked for `patience`: the caller's own capture may be the
  /// cause. `while_waiting` is session_options::while_waiting.
  gpu_owner::hand_over::taken take_from(gpu_owner::hand_over& queue,
                                        nanoseconds patience = std::chrono::seconds(10),
                                        const std::function<void()>& while_waiting = {});
  void close() {
    const std::lock_guard hold(mutex_);
    gone_.store(true, std::memory_order_release);
    device_.reset();
    give_back_ = {};
  }

 private:
  [[noreturn]] void refuse() const {
    throw error({errc::usage,
                 "the " + whose_ + " of this " + what_ + " is closed; release everything on its device first",
                 0});
  }
  /// Call with mutex_ held. True if some buffers are still parked.
  bool give_back_parked();

  const home_process process_;
  const std::string what_ = "batch";
  const std::string whose_ = "session";
  std::atomic<bool> gone_ = false;
  std::mutex mutex_;  // guards the members below
  std::shared_ptr<device::device> device_;
  std::function<void(std::uint32_t)> give_back_;
  std::vector<std::uint32_t> parked_;  // at most one per device buffer
  std::uint32_t buffers_ = 0;          // 0: unknown
};

struct Batch::body {
  body(gpu_owner::ready_batch from, std::shared_ptr<const device::transfer_plan> how,
       std::shared_ptr<batch_home> back);
  ~body();
  body(const body&) = delete;
  body& operator=(const body&) = delete;

  gpu_owner::ready_batch ready;
  std::shared_ptr<const device::transfer_plan> plan;
  std::shared_ptr<batch_home> home;
  std::vector<tensor_view> tensors;
  std::vector<tensor_view> records;
};

struct batch_access {
  static Batch make(gpu_owner::ready_batch from, std::shared_ptr<const device::transfer_plan> how,
                    std::shared_ptr<batch_home> back) {
    return Batch(std::make_unique<Batch::body>(std::move(from), std::move(how), std::move(back)));
  }
};

}  // namespace penstock
