#include "runtime/device/host_device.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/streaming_copy.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/host_convert.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

namespace penstock::device {
namespace {

/// The speed of a simulated slow device, in bytes per second. 0: as fast as the host. Only for tests, which set PENSTOCK_CHAOS=1.
std::uint64_t rate_for_tests(const char* variable) noexcept {
  const char* const allowed = std::getenv("PENSTOCK_CHAOS");
  const char* const rate = std::getenv(variable);
  if (allowed == nullptr || std::strcmp(allowed, "1") != 0 || rate == nullptr) return 0;
  return std::strtoull(rate, nullptr, 10);
}

/// Makes the enclosing block take as long as a device with `rate` bytes per second needs for `bytes`.
class slowed_down {
 public:
  slowed_down(std::uint64_t rate, std::uint64_t bytes)
      : until_(rate == 0 ? never
                         : std::chrono::steady_clock::now() +
                               nanoseconds(static_cast<std::int64_t>(static_cast<double>(bytes) * 1e9 /
                                                                     static_cast<double>(rate)))) {}
  ~slowed_down() {
    if (until_ != never) std::this_thread::sleep_until(until_);
  }
  slowed_down(const slowed_down&) = delete;
  slowed_down& operator=(const slowed_down&) = delete;

 private:
  steady_time until_;
};

/// Copies large tensors bypassing the caches, because this core reads neither side again.
void copy(std::span<std::byte> to, std::span<const std::byte> from) noexcept {
  constexpr std::size_t streamed_min = 256 * KiB;
  if (from.size() >= streamed_min) return streaming_copy(to, from);
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

/// Memory with the alignment of device memory.
class host_memory {
 public:
  /// Null if there is too little memory.
  static std::byte* take(std::uint64_t bytes) noexcept {
    if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max())) return nullptr;
    return static_cast<std::byte*>(::operator new(bytes, alignment, std::nothrow));
  }
  static void give_back(std::byte* memory) noexcept { ::operator delete(memory, alignment); }

 private:
  static constexpr std::align_val_t alignment{layout_alignment};
};

/// Memory of a buffer of the ring. It is on huge pages if the system provides them,
/// and fully allocated from the start, so that no copy waits for page faults.
class host_buffer {
 public:
  /// Null if there is too little memory.
  static std::optional<host_buffer> make(std::uint64_t bytes) {
    if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max()) - huge_page)
      return std::nullopt;
    const bool huge = bytes >= huge_page;
    mapping range = map_anonymous(std::max<std::uint64_t>(bytes, 1) + (huge ? huge_page : 0));
    if (!range) return std::nullopt;
    std::byte* memory = range.bytes().data();
    if (huge) {
      memory += (huge_page - reinterpret_cast<std::uintptr_t>(memory) % huge_page) % huge_page;
      static_cast<void>(::madvise(memory, bytes, MADV_HUGEPAGE));
    }
    for (std::uint64_t at = 0; at < bytes; at += small_page)
      *static_cast<volatile std::byte*>(memory + at) = {};
    return host_buffer(std::move(range), memory, bytes);
  }
  [[nodiscard]] std::byte* data() const noexcept { return memory_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_; }

 private:
  static constexpr std::uint64_t huge_page = 2U << 20U;
  static constexpr std::uint64_t small_page = 4096;

  host_buffer(mapping range, std::byte* memory, std::uint64_t bytes)
      : range_(std::move(range)), memory_(memory), bytes_(bytes) {}

  mapping range_;
  std::byte* memory_;
  std::uint64_t bytes_;
};

class host_device final : public device {
 public:
  ~host_device() override { close(); }

  result<identity> open() override { return identity{"host", "host memory", std::nullopt}; }

  result<bool> attach(std::uint32_t partition, std::span<std::byte> memory) override {
    const std::lock_guard hold(mutex_);
    partitions_[partition] = memory;
    return true;  // the copy engine is a thread, which can read all memory
  }

  result<void> allocate(const transfer_plan& plan, std::uint32_t buffers) override {
    buffers_.clear();
    for (std::uint32_t i = 0; i < buffers; ++i) {
      if (auto made = host_buffer::make(plan.buffer_bytes)) {
        buffers_.push_back(std::move(*made));
        continue;
      }
      buffers_.clear();
      return refuse(errc::device_out_of_memory, "{} buffers of {} do not fit in host memory", buffers,
                    bytes_for_people(plan.buffer_bytes));
    }
    plan_ = plan;
    if (!engine_.joinable()) start_engine();
    return {};
  }

  result<void> submit(std::span<const upload_job> jobs) override {
    bool was_idle = false;
    {
      const std::lock_guard hold(mutex_);
      was_idle = jobs_.empty();
      for (const upload_job& job : jobs) {
        const auto memory = partitions_.find(job.partition);
        PENSTOCK_CHECK(memory != partitions_.end(), "partition {}", job.partition);
        PENSTOCK_CHECK(job.slot_offset + plan_.read_bytes(job.rows, job.extents) <= memory->second.size(),
                       "slot at {}", job.slot_offset);
        PENSTOCK_CHECK(job.buffer < buffers_.size(), "buffer {} of {}", job.buffer, buffers_.size());
        jobs_.push_back({job, memory->second.data() + job.slot_offset});
      }
    }
    if (was_idle) work_.notify_one();
    return {};
  }

  result<std::vector<progress>> poll() override {
    const std::lock_guard hold(mutex_);
    return std::exchange(done_, {});
  }

  void on_progress(std::function<void()> waker) override {
    const std::lock_guard hold(waker_mutex_);
    waker_ = std::move(waker);
  }

  void close() noexcept override {
    if (!engine_.joinable()) return;
    {
      const std::lock_guard hold(mutex_);
      closing_ = true;
    }
    work_.notify_one();
    engine_.join();
  }

  [[nodiscard]] std::byte* address(std::uint32_t buffer) const override { return buffers_[buffer].data(); }

  result<void> read_back(std::uint32_t buffer, std::uint64_t offset, std::span<std::byte> to) override {
    PENSTOCK_CHECK(offset + to.size() <= buffers_[buffer].size(), "offset {} bytes {}", offset, to.size());
    std::memcpy(to.data(), buffers_[buffer].data() + offset, to.size());
    return {};
  }

  // Ready batches are complete in host memory, and the consumer's work is synchronous, so there is nothing to wait for.
  result<void> wait(std::uint32_t, stream_handle) override { return {}; }
  result<void> release_after(std::uint32_t, std::span<const stream_handle>) override { return {}; }
  result<void> finish(stream_handle) override { return {}; }

  result<stream_handle> enter_programs() override { return stream_handle{}; }
  result<void> finish_program() override { return {}; }
  result<std::byte*> take_memory(std::uint64_t bytes) override {
    if (std::byte* const memory = host_memory::take(bytes)) return memory;
    return refuse(errc::device_out_of_memory, "{} do not fit in host memory", bytes_for_people(bytes));
  }
  void give_back_memory(std::byte* memory) noexcept override { host_memory::give_back(memory); }

  [[nodiscard]] bool on_host() const noexcept override { return true; }

 private:
  struct queued_job {
    upload_job job;
    const std::byte* slot = nullptr;
  };

  void start_engine() {
    const all_signals_blocked quiet;
    engine_ = std::thread([this] { run_engine(); });
  }

  void run_engine() {
    ::pthread_setname_np(::pthread_self(), "penstock-copy");
    std::unique_lock hold(mutex_);
    while (true) {
      work_.wait(hold, [&] { return closing_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const queued_job next = std::move(jobs_.front());
      jobs_.pop_front();
      hold.unlock();
      const steady_time converts_since = transfer(next);
      hold.lock();
      const bool wake = done_.empty();
      done_.push_back({next.job.upload, stage::copied, converts_since});
      done_.push_back({next.job.upload, stage::ready});
      if (!wake) continue;
      hold.unlock();
      call_waker();
      hold.lock();
    }
  }

  void call_waker() {
    const std::lock_guard hold(waker_mutex_);
    if (waker_) waker_();
  }

  /// Returns the time at which the copy ended and the conversion began.
  steady_time transfer(const queued_job& next) {
    std::byte* buffer = buffers_[next.job.buffer].data();
    const std::uint64_t bytes = plan_.read_bytes(next.job.rows, next.job.extents);
    {
      const stage_range range("copy");
      const slowed_down here(link_rate_, bytes);
      for (const copy_step& step : plan_.copies) {
        const std::uint64_t size = plan_.row_bytes(step.tensor, next.job.extents) * next.job.rows;
        copy({buffer + step.to, size}, {next.slot + step.from, size});
      }
    }
    const steady_time copied = std::chrono::steady_clock::now();
    if (plan_.conversions.empty()) return copied;
    const stage_range range("transform");
    const slowed_down here(conversion_rate_, bytes);
    for (const convert_step& step : plan_.conversions) convert_(step, next.slot, buffer, next.job.rows);
    return copied;
  }

  transfer_plan plan_;
  const std::uint64_t link_rate_ = rate_for_tests("PENSTOCK_SLOW_LINK");
  const std::uint64_t conversion_rate_ = rate_for_tests("PENSTOCK_SLOW_CONVERSION");
  const host_conversion convert_ = best_conversion();
  std::vector<host_buffer> buffers_;
  // held during the waker's call, so on_progress() waits for the waker that it replaces
  std::mutex waker_mutex_;
  std::function<void()> waker_;
  std::thread engine_;

  std::mutex mutex_;
  std::condition_variable work_;
  std::map<std::uint32_t, std::span<std::byte>> partitions_;
  std::deque<queued_job> jobs_;  // at most one per slot
  std::vector<progress> done_;   // at most two per job
  bool closing_ = false;
};

}  // namespace

std::unique_ptr<device> make_host_device() {
  return std::make_unique<host_device>();
}

}  // namespace penstock::device
