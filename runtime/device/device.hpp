// A device that batches are copied to: the CUDA device, or the host device, a real one that copies to host
// memory and says so. Driven by the GPU owner actor, which is the only caller of everything but the
// consumer's part.
#pragma once

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
  std::uint64_t upload = 0;       ///< comes back in progress
  std::uint32_t buffer = 0;       ///< of the ring; must be free
  std::uint32_t partition = 0;    ///< attached
  std::uint64_t slot_offset = 0;  ///< in the partition
  std::uint32_t rows = 0;
  batch_extents extents = {};  ///< of a batch of variable size
};

enum class stage : std::uint8_t {
  copied,  ///< the slot is not read any more
  ready,   ///< the batch lies in its buffer, converted
};
struct progress {
  std::uint64_t upload = 0;
  stage reached = stage::copied;
};

class device {
 public:
  device() = default;
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  virtual ~device() = default;

  // The owner's part: all calls from one thread.

  /// Selects the device and creates what must live there first. Refuses with errc::device_*.
  virtual result<identity> open() = 0;
  /// Memory that slots lie in, mapped until close(). True if the device's DMA engine can read it
  /// directly (page-locked); false is slower, not wrong.
  virtual result<bool> attach(std::uint32_t partition, std::span<std::byte> memory) = 0;
  /// A ring of buffers for batches of this plan. Refuses with errc::device_out_of_memory, naming asked and
  /// free; the device stays usable.
  virtual result<void> allocate(const transfer_plan& plan, std::uint32_t buffers) = 0;
  /// Starts jobs and returns. They are copied in the order of submission. Jobs of one call may be reported
  /// together: many small ones in one call are cheaper than many calls.
  virtual result<void> submit(std::span<const upload_job> jobs) = 0;
  /// What has happened since the last call. An error that a copy or kernel left behind is reported here or in
  /// any later call: it happened at or before that.
  virtual result<std::vector<progress>> poll() = 0;
  /// The oldest job under way cannot begin: the consumer's stream has not reached the release of its buffer
  /// yet. Distinguishes a slow consumer from a copy that never ends.
  [[nodiscard]] virtual bool waits_for_consumer() const { return false; }
  /// Called from any thread when poll() has news. Must only pass a message on. Set before the first submit;
  /// a waker that was replaced is no longer called when this returns.
  virtual void on_progress(std::function<void()> waker) = 0;
  /// Waits for what is under way (not for ever: what a hung or poisoned device holds is left to the end of
  /// the process), gives everything back. Idempotent. Call before destruction, on the owner's thread.
  virtual void close() noexcept = 0;

  // The consumer's part: any thread, for a buffer whose upload is ready and that is not released. None of it
  // disturbs a stream capture of the program's, on this thread or another.

  [[nodiscard]] virtual std::byte* address(std::uint32_t buffer) const = 0;
  /// Copies bytes of a buffer to host memory and waits for them.
  virtual result<void> read_back(std::uint32_t buffer, std::uint64_t offset, std::span<std::byte> to) = 0;
  /// Work that is put on the stream later sees the batch. Touches no other stream and leaves the caller's
  /// current device as it was; release() too.
  virtual result<void> wait(std::uint32_t buffer, stream_handle stream) = 0;
  /// The buffer is used again when what is on these streams now is done (none: nothing uses it). Refused - with
  /// errc::usage while one of them takes part in a stream capture - the buffer is still the caller's.
  virtual result<void> release_after(std::uint32_t buffer, std::span<const stream_handle> streams) = 0;
  result<void> release(std::uint32_t buffer, stream_handle stream) {
    return release_after(buffer, {&stream, 1});
  }
  /// Waits until the work on the stream is done, and reports the error that it left behind. Refuses (errc::usage) a
  /// stream that is being captured.
  virtual result<void> finish(stream_handle stream) = 0;
  /// Whether addresses are plain host memory.
  [[nodiscard]] virtual bool on_host() const noexcept = 0;
};

/// "auto", "host", "cuda", "cuda:N" or "uuid:GPU-...". Not opened yet. With "auto" the CUDA device is chosen
/// when this build has it and the machine has a GPU. Refuses what this build cannot do.
result<std::unique_ptr<device>> make_device(const std::string& choice);

}  // namespace penstock::device
