// A device that batches are copied to: the CUDA device, or the host device, which copies to host memory.
// Driven by the GPU owner actor. Only this actor calls anything outside the consumer's part.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"
#include "runtime/device/transfer_plan.hpp"

#include <penstock/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::device {

struct identity {
  std::string kind;  ///< "host" or "cuda"
  std::string name;  ///< "host memory", "NVIDIA H200"
  std::optional<std::string> uuid;
};

/// Copy a slot into a device buffer and convert it there.
struct upload_job {
  std::uint64_t upload = 0;       ///< identifies the job in `progress`
  std::uint32_t buffer = 0;       ///< index in the ring; must be free
  std::uint32_t partition = 0;    ///< partition of the slot; must be attached
  std::uint64_t slot_offset = 0;  ///< offset in the partition
  std::uint32_t rows = 0;
  batch_extents extents = {};  ///< set for a batch of variable size
};

enum class stage : std::uint8_t {
  copied,  ///< the slot is no longer read
  ready,   ///< the batch is in its buffer, converted
};
struct progress {
  std::uint64_t upload = 0;
  stage reached = stage::copied;
  /// When copying ended and conversion began. Set with `copied`, by a device that converts straight from the slot.
  std::optional<steady_time> converts_since = {};
};

class device {
 public:
  device() = default;
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  virtual ~device() = default;

  // The owner's part. All calls come from one thread.

  /// Selects the device and creates its context and streams. Refuses with errc::device_*.
  virtual result<identity> open() = 0;
  /// Registers memory with slots; the memory must stay mapped until close(). Returns true if the
  /// device's DMA engine can read it directly (page-locked). If false, copies are slower but correct.
  virtual result<bool> attach(std::uint32_t partition, std::span<std::byte> memory) = 0;
  /// Allocates a ring of buffers for batches of this plan. Refuses with errc::device_out_of_memory, naming
  /// requested and free bytes; the device stays usable.
  virtual result<void> allocate(const transfer_plan& plan, std::uint32_t buffers) = 0;
  /// Starts jobs and returns. They are copied in the order of submission. Jobs of one call may be reported
  /// together: many small ones in one call are cheaper than many calls.
  virtual result<void> submit(std::span<const upload_job> jobs) = 0;
  /// Progress since the last call. An asynchronous error of a copy or kernel is reported here or by any later
  /// call: the failed work may be any that was started before that call.
  virtual result<std::vector<progress>> poll() = 0;
  /// Whether the oldest job in flight cannot start because the consumer's stream has not reached the release of its
  /// buffer. Distinguishes a slow consumer from a copy that never ends.
  [[nodiscard]] virtual bool waits_for_consumer() const { return false; }
  /// Sets the function that is called, from any thread, when poll() has progress to report. `waker` may only send a
  /// message. Set it before the first submit; once this returns, the previous waker is no longer called.
  virtual void on_progress(std::function<void()> waker) = 0;
  /// Waits for jobs in flight, for a limited time, and frees everything. Memory of a hung or poisoned device
  /// is freed only when the process ends. Idempotent. Call before destruction, on the owner's thread.
  virtual void close() noexcept = 0;

  // The consumer's part. Call it on any thread, for a buffer whose upload is ready and that has not been released. No
  // call disturbs the program's stream captures, on any thread.

  [[nodiscard]] virtual std::byte* address(std::uint32_t buffer) const = 0;
  /// Copies bytes of a buffer to host memory. Blocks until done.
  virtual result<void> read_back(std::uint32_t buffer, std::uint64_t offset, std::span<std::byte> to) = 0;
  /// Makes work that is later queued on the stream see the batch. Like release_after(), it touches no other stream and
  /// does not change the caller's current device.
  virtual result<void> wait(std::uint32_t buffer, stream_handle stream) = 0;
  /// Lets the buffer be reused once all work now on these streams is done (no streams: nothing uses it). Refuses with
  /// errc::usage while one of them is being captured, and with other codes if the device fails. After a refusal the
  /// caller still holds the buffer.
  virtual result<void> release_after(std::uint32_t buffer, std::span<const stream_handle> streams) = 0;
  result<void> release(std::uint32_t buffer, stream_handle stream) {
    return release_after(buffer, {&stream, 1});
  }
  /// Waits until the work on the stream is done, and returns its error, if any. Refuses (errc::usage) a
  /// stream that is being captured.
  virtual result<void> finish(stream_handle stream) = 0;

  // For device programs of jobs. All calls come after open(), from one penstock thread that is not the owner's.

  /// Makes the calling thread the programs' thread. Returns the stream on which they queue their work; nothing else uses that stream.
  virtual result<stream_handle> enter_programs() = 0;
  /// Waits until the work on that stream is done. Refuses with an error left behind by that work or by one of the
  /// program's calls on this thread, and clears it, so that the next program does not see it.
  virtual result<void> finish_program() = 0;
  /// Device memory outside the ring. Refuses (errc::device_out_of_memory, naming requested and free bytes);
  /// the device stays usable.
  virtual result<std::byte*> take_memory(std::uint64_t bytes) = 0;
  virtual void give_back_memory(std::byte* memory) noexcept = 0;

  /// Whether addresses are plain host memory.
  [[nodiscard]] virtual bool on_host() const noexcept = 0;
};

/// `choice`: "auto", "host", "cuda", "cuda:N" or "uuid:GPU-...". The device is not opened yet. "auto" chooses the CUDA
/// device if this build has it and the machine has a GPU. Refuses what this build cannot do.
result<std::unique_ptr<device>> make_device(const std::string& choice);

}  // namespace penstock::device
