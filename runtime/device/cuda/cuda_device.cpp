#include "runtime/device/cuda/cuda_device.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/alarm.hpp"
#include "runtime/device/cuda/convert_batch.hpp"
#include "runtime/device/cuda/cuda_choice.hpp"
#include "runtime/device/cuda/cuda_context.hpp"
#include "runtime/device/cuda/cuda_error.hpp"
#include "runtime/device/cuda/jpeg_decoder.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <deque>
#include <map>

namespace penstock::device {
namespace {

using namespace std::chrono_literals;

// Events show when copies are done, one event for a group of copies: recording one after each 64 KiB copy
// would cost as much as launching the copy. A group ends after 8 copies, or once its copies have 512 KiB.
constexpr std::uint64_t group_bytes = 512 * KiB;
constexpr std::uint32_t group_jobs_max = 8;

// How often the owner checks copies in flight: every 50 us at first. If nothing finishes, it waits an eighth of the
// time that has passed, so it notices the end of a copy at most an eighth too late. It does not rely on the driver's
// callback (a host function): measured on a separate stream, the callback runs up to 1.2 ms after the copy. With four
// buffers of 19 MB, the copy engine would be idle at times.
constexpr nanoseconds look_every = 50us;
constexpr nanoseconds look_at_least_every = 5ms;

constexpr auto close_deadline = 2s;

class cuda_device final : public device {
 public:
  explicit cuda_device(cuda_choice choice) : choice_(std::move(choice)) {}
  ~cuda_device() override { close(); }

  result<identity> open() override {
    auto selected = select_gpu(choice_);
    if (!selected) return tl::unexpected(std::move(selected.error()));
    name_ = selected->what.name;
    has_.opened = true;
    if (auto ok = context_.open(); !ok) return tl::unexpected(ok.error());
    for (cudaStream_t* s : {&copy_stream_, &compute_stream_, &read_stream_, &program_stream_}) {
      if (auto ok = call(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), "creating a stream"); !ok) {
        return tl::unexpected(ok.error());
      }
    }
    return selected->what;
  }

  result<bool> attach(std::uint32_t partition, std::span<std::byte> memory) override {
    std::optional<jpeg_decoder::pause> pause;
    if (jpegs_) pause.emplace(*jpegs_);
    const auto status = cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
    if (status == cudaSuccess) {
      partitions_[partition] = {memory, true};
      return true;
    }
    cudaGetLastError();
    if (!context_.answers())
      return tl::unexpected(failure_from(status, "page-locking memory, or an earlier operation"));
    // Without page-locking, copies are slower but correct.
    if (!has_.warned_pageable) {
      log::warn(
          "gpu",
          "{} of the arena could not be page-locked ({}): copies will be slower. Usual cause: a low limit "
          "on locked memory (ulimit -l)",
          bytes_for_people(memory.size()), cudaGetErrorString(status));
      has_.warned_pageable = true;
    }
    partitions_[partition] = {memory, false};
    return false;
  }

  result<void> allocate(const transfer_plan& plan, std::uint32_t buffers) override {
    free_buffers();
    jpegs_.reset();
    plan_ = plan;
    const std::uint64_t one =
        round_up(plan.buffer_bytes, layout_alignment) + round_up(plan.staging_bytes(), layout_alignment);
    const std::uint64_t all = std::max<std::uint64_t>(one * buffers, 1);
    if (const auto status = cudaMalloc(&memory_, all); status != cudaSuccess) {
      memory_ = nullptr;
      cudaGetLastError();
      std::size_t free = 0;
      std::size_t total = 0;
      cudaMemGetInfo(&free, &total);
      return tl::unexpected(
          failure_from(status, fmt::format("allocating {} buffers of {} on {} (requested {}, free {} of {}; lower [gpu] buffers)",
                                           buffers, bytes_for_people(one), name_, bytes_for_people(all),
                                           bytes_for_people(free), bytes_for_people(total))));
    }
    ring_.resize(buffers);
    group_jobs_ = std::clamp(buffers / 4, 1U, group_jobs_max);
    for (std::uint32_t i = 0; i < buffers; ++i) {
      ring_[i].data = static_cast<std::byte*>(memory_) + i * one;
      ring_[i].staging = ring_[i].data + round_up(plan.buffer_bytes, layout_alignment);
      if (auto ok = call(cudaEventCreateWithFlags(&ring_[i].released.front(), cudaEventDisableTiming),
                         "creating an event");
          !ok) {
        return ok;
      }
    }
    if (!plan_.decode) return {};
    // Start the decoder after the buffers are allocated, so that fewer buffers leave more memory for it.
    auto jpegs = jpeg_decoder::open(context_, plan_);
    if (!jpegs) {
      free_buffers();
      return tl::unexpected(std::move(jpegs.error()));
    }
    jpegs_ = std::move(*jpegs);
    return {};
  }

  result<void> submit(std::span<const upload_job> jobs) override {
    if (in_flight_.empty()) last_news_ = std::chrono::steady_clock::now();
    if (jpegs_) return submit_to_decoder(jobs);
    group next;
    std::uint64_t bytes = 0;
    for (const upload_job& job : jobs) {
      if (next.jobs.empty()) {
        auto begun = begin_group();
        if (!begun) return tl::unexpected(std::move(begun.error()));
        next = std::move(*begun);
        bytes = 0;
      }
      if (auto ok = copy(job); !ok) return ok;
      next.jobs.push_back(job);
      bytes += plan_.read_bytes(job.rows, job.extents);
      if (bytes < group_bytes && next.jobs.size() < group_jobs_) continue;
      if (auto ok = end_group(std::move(next)); !ok) return ok;
      next = {};
    }
    if (!next.jobs.empty()) {
      if (auto ok = end_group(std::move(next)); !ok) return ok;
    }
    look_again();
    return {};
  }

  result<std::vector<progress>> poll() override {
    std::vector<progress> news;
    for (group& g : in_flight_) {
      if (g.slots_are_free) continue;
      if (jpegs_ && g.decoded_as > jpegs_->begun()) break;
      auto done = is_done(g.copied);
      if (!done) return tl::unexpected(std::move(done.error()));
      if (!*done) break;
      g.slots_are_free = true;
      for (const upload_job& job : g.jobs) news.push_back({job.upload, stage::copied, g.decodes_since});
    }
    while (!in_flight_.empty() && in_flight_.front().slots_are_free) {
      group& g = in_flight_.front();
      if (g.ready != nullptr) {
        auto done = is_done(g.ready);
        if (!done) return tl::unexpected(std::move(done.error()));
        if (!*done) break;
      }
      for (const upload_job& job : g.jobs) news.push_back({job.upload, stage::ready});
      end_of(std::move(g));
      in_flight_.pop_front();
    }
    // This check is last, because the decoder's result for a batch is known only after the batch's events.
    if (auto no = jpegs_ ? jpegs_->failed() : std::nullopt) {
      if (no->status != cudaSuccess) return tl::unexpected(failure_from(no->status, no->what));
      return tl::unexpected(failure{no->code, std::move(no->what), 0});
    }
    if (!news.empty()) last_news_ = std::chrono::steady_clock::now();
    look_again();
    return news;
  }

  [[nodiscard]] bool waits_for_consumer() const override {
    if (in_flight_.empty() || in_flight_.front().slots_are_free) return false;
    return std::ranges::any_of(in_flight_.front().jobs, [&](const upload_job& job) {
      const ring_buffer& b = ring_[job.buffer];
      return std::any_of(b.released.begin(),
                         b.released.begin() + static_cast<std::ptrdiff_t>(b.pending_on_copy),
                         [](cudaEvent_t e) { return cudaEventQuery(e) == cudaErrorNotReady; });
    });
  }

  void on_progress(std::function<void()> waker) override { alarm_.on_ring(std::move(waker)); }

  void close() noexcept override {
    if (!has_.opened) return;
    has_.opened = false;
    const relaxed_captures relaxed;  // the destructor may run on any thread
    on_progress({});
    if (jpegs_ && !jpegs_->close(close_deadline)) {
      log::warn("gpu",
                "decoding on {} did not end within {} s: its memory is freed only when this process exits",
                name_, std::chrono::duration_cast<std::chrono::seconds>(close_deadline).count());
      static_cast<void>(jpegs_.release());
      return;
    }
    jpegs_.reset();
    // Errors are not reported here, because poll() has already reported them to the code that can act on them.
    for (cudaStream_t s : {copy_stream_, compute_stream_, program_stream_}) {
      if (s == nullptr || wait_for_stream(s, close_deadline) != cudaErrorNotReady) continue;
      log::warn("gpu", "work on {} did not end within {} s: its memory is freed only when this process exits",
                name_, std::chrono::duration_cast<std::chrono::seconds>(close_deadline).count());
      return;
    }
    for (cudaStream_t s : {copy_stream_, compute_stream_, read_stream_, program_stream_}) {
      if (s != nullptr) cudaStreamDestroy(s);
    }
    for (const auto& [number, p] : partitions_) {
      if (p.registered) cudaHostUnregister(p.memory.data());
    }
    partitions_.clear();
    in_flight_.clear();
    free_buffers();
    for (cudaEvent_t e : events_) cudaEventDestroy(e);
    events_.clear();
    spare_events_.clear();
    context_.close();
    cudaGetLastError();
  }

  [[nodiscard]] std::byte* address(std::uint32_t buffer) const override { return ring_[buffer].data; }

  result<void> read_back(std::uint32_t buffer, std::uint64_t offset, std::span<std::byte> to) override {
    const cuda_context::visit ours(context_);
    // Does not use cudaMemcpy, which also waits for the embedding program's streams.
    if (auto ok = call(cudaMemcpyAsync(to.data(), ring_[buffer].data + offset, to.size(),
                                       cudaMemcpyDeviceToHost, read_stream_),
                       "reading a batch back, or an earlier operation");
        !ok) {
      return ok;
    }
    return call(cudaStreamSynchronize(read_stream_), "reading a batch back, or an earlier operation");
  }

  // A batch is handed out only after its events have completed, so later work on any stream sees it. Nothing needs to be done here.
  result<void> wait(std::uint32_t, stream_handle) override { return {}; }

  result<void> release_after(std::uint32_t buffer, std::span<const stream_handle> streams) override {
    const cuda_context::visit ours(context_);
    ring_buffer& b = ring_[buffer];
    // Waiting for an event recorded in a capture would make the copy stream part of the capture.
    for (const stream_handle stream : streams) {
      const auto where = static_cast<cudaStream_t>(stream.native);
      if (auto no = context_.refuse_during_capture(where, "releasing a batch"); !no) return no;
    }
    while (b.released.size() < streams.size()) {
      cudaEvent_t fresh = nullptr;
      if (auto ok = call(cudaEventCreateWithFlags(&fresh, cudaEventDisableTiming), "creating an event"); !ok)
        return ok;
      b.released.push_back(fresh);
    }
    b.pending = 0;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const auto where = static_cast<cudaStream_t>(streams[i].native);
      if (auto ok = call(cudaEventRecord(b.released[i], where), "releasing a batch, or an earlier operation"); !ok)
        return ok;
    }
    b.pending = streams.size();
    return {};
  }

  result<void> finish(stream_handle stream) override {
    const cuda_context::visit ours(context_);
    const auto where = static_cast<cudaStream_t>(stream.native);
    if (auto no = context_.refuse_during_capture(where, "waiting for the work"); !no) return no;
    return call(cudaStreamSynchronize(where), "waiting for the work of a stream, or an earlier operation");
  }

  result<stream_handle> enter_programs() override {
    context_.enter_for_good();
    return stream_handle{program_stream_};
  }

  result<void> finish_program() override {
    const auto done = cudaStreamSynchronize(program_stream_);
    const auto left = cudaGetLastError();
    if (done != cudaSuccess)
      return tl::unexpected(failure_from(done, "the work of a device program, or an earlier operation"));
    return call(left, "an error that a call of the device program left behind");
  }

  result<std::byte*> take_memory(std::uint64_t bytes) override {
    void* memory = nullptr;
    const auto status = cudaMalloc(&memory, bytes);
    if (status == cudaSuccess) return static_cast<std::byte*>(memory);
    cudaGetLastError();
    std::size_t free = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return tl::unexpected(failure_from(
        status,
        fmt::format("allocating memory for a device program on {} (requested {}, free {} of {})", name_,
                    bytes_for_people(bytes), bytes_for_people(free), bytes_for_people(total))));
  }
  void give_back_memory(std::byte* memory) noexcept override {
    cudaFree(memory);
    cudaGetLastError();
  }

  [[nodiscard]] bool on_host() const noexcept override { return false; }

 private:
  struct attached_memory {
    std::span<std::byte> memory;
    bool registered = false;
  };
  struct ring_buffer {
    std::byte* data = nullptr;
    std::byte* staging = nullptr;
    // An event for each of the consumer's streams. The first is created with the buffer, the others when needed.
    std::vector<cudaEvent_t> released{nullptr};
    std::size_t pending = 0;          // how many events were recorded; passed from consumer to owner with the buffer
    std::size_t pending_on_copy = 0;  // how many events the current copy had to wait for
  };
  // Jobs that share completion events.
  struct group {
    cudaEvent_t copied = nullptr;
    cudaEvent_t ready = nullptr;  // null: the batch is ready as soon as it is copied
    std::vector<upload_job> jobs;
    bool slots_are_free = false;
    std::uint64_t decoded_as = 0;  // the decoder's number for its job
    std::optional<steady_time> decodes_since = {};
  };

  failure failure_from(cudaError_t status, std::string_view what) {
    return context_.failure_from(status, what);
  }
  result<void> call(cudaError_t status, std::string_view what) { return context_.call(status, what); }

  result<bool> is_done(cudaEvent_t event) {
    const auto status = cudaEventQuery(event);
    if (status == cudaSuccess) return true;
    if (status == cudaErrorNotReady) return false;
    return tl::unexpected(failure_from(status, "waiting for a copy or a kernel, or an earlier operation"));
  }

  result<cudaEvent_t> take_event() {
    if (spare_events_.empty()) {
      cudaEvent_t fresh = nullptr;
      if (auto ok = call(cudaEventCreateWithFlags(&fresh, cudaEventDisableTiming), "creating an event"); !ok)
        return tl::unexpected(std::move(ok.error()));
      events_.push_back(fresh);
      return fresh;
    }
    cudaEvent_t event = spare_events_.back();
    spare_events_.pop_back();
    return event;
  }

  result<group> begin_group() {
    group fresh;
    auto copied = take_event();
    if (!copied) return tl::unexpected(std::move(copied.error()));
    fresh.copied = *copied;
    if (!plan_.conversions.empty()) {
      auto ready = take_event();
      if (!ready) return tl::unexpected(std::move(ready.error()));
      fresh.ready = *ready;
    }
    if (!spare_lists_.empty()) {
      fresh.jobs = std::move(spare_lists_.back());
      spare_lists_.pop_back();
    }
    return fresh;
  }

  result<void> end_group(group done) {
    if (auto ok = call(cudaEventRecord(done.copied, copy_stream_), "recording an event, or an earlier operation");
        !ok)
      return ok;
    if (done.ready != nullptr) {
      if (auto ok = call(cudaStreamWaitEvent(compute_stream_, done.copied, 0),
                         "ordering a kernel after its copy, or an earlier operation");
          !ok) {
        return ok;
      }
      for (const upload_job& job : done.jobs) {
        if (auto ok = convert(ring_[job.buffer], job.rows, job.extents); !ok) return ok;
      }
      if (auto ok =
              call(cudaEventRecord(done.ready, compute_stream_), "recording an event, or an earlier operation");
          !ok)
        return ok;
    }
    in_flight_.push_back(std::move(done));
    return {};
  }

  /// Each job is a group of its own, because bookkeeping takes little time compared with decoding.
  result<void> submit_to_decoder(std::span<const upload_job> jobs) {
    for (const upload_job& job : jobs) {
      auto begun = begin_group();
      if (!begun) return tl::unexpected(std::move(begun.error()));
      ring_buffer& b = ring_[job.buffer];
      const std::byte* const slot = slot_of(job);
      b.pending_on_copy = std::exchange(b.pending, 0);
      begun->jobs.push_back(job);
      begun->decodes_since = std::chrono::steady_clock::now();
      begun->decoded_as = jpegs_->push(
          {slot,
           b.staging,
           b.data,
           job.rows,
           {b.released.begin(), b.released.begin() + static_cast<std::ptrdiff_t>(b.pending_on_copy)},
           begun->copied,
           begun->ready});
      in_flight_.push_back(std::move(*begun));
    }
    look_again();
    return {};
  }

  const std::byte* slot_of(const upload_job& job) const {
    const auto memory = partitions_.find(job.partition);
    PENSTOCK_CHECK(memory != partitions_.end(), "partition {}", job.partition);
    PENSTOCK_CHECK(job.buffer < ring_.size(), "buffer {} of {}", job.buffer, ring_.size());
    PENSTOCK_CHECK(job.slot_offset + plan_.read_bytes(job.rows, job.extents) <= memory->second.memory.size(),
                   "slot at {}", job.slot_offset);
    return memory->second.memory.data() + job.slot_offset;
  }

  void end_of(group done) {
    spare_events_.push_back(done.copied);
    if (done.ready != nullptr) spare_events_.push_back(done.ready);
    done.jobs.clear();
    spare_lists_.push_back(std::move(done.jobs));
  }

  result<void> copy(const upload_job& job) {
    const stage_range range("copy");
    const std::byte* const slot = slot_of(job);
    ring_buffer& b = ring_[job.buffer];
    b.pending_on_copy = std::exchange(b.pending, 0);
    for (std::size_t i = 0; i < b.pending_on_copy; ++i) {
      if (auto ok = call(cudaStreamWaitEvent(copy_stream_, b.released[i], 0),
                         "ordering a copy after the consumer, or an earlier operation");
          !ok)
        return ok;
    }
    if (plan_.staged) {
      // Copies the whole batch at once; tensors without conversion are then copied on the device, which costs
      // almost nothing.
      return enqueue(b.staging, slot, plan_.slot.used_bytes(job.rows));
    }
    for (const copy_step& step : plan_.copies) {
      if (auto ok = enqueue(b.data + step.to, slot + step.from,
                            plan_.row_bytes(step.tensor, job.extents) * job.rows);
          !ok)
        return ok;
    }
    return {};
  }

  result<void> enqueue(std::byte* to, const std::byte* from, std::uint64_t bytes) {
    if (bytes == 0) return {};
    const auto status = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, copy_stream_);
    if (status == cudaSuccess) return {};
    return tl::unexpected(failure_from(
        status, fmt::format("copying {} to {}, or an earlier operation", bytes_for_people(bytes), name_)));
  }

  result<void> convert(const ring_buffer& b, std::uint32_t rows, const batch_extents& extents) {
    const stage_range range("transform");
    return call(queue_conversions(plan_, b.staging, b.data, rows, extents, compute_stream_),
                "converting a batch, or an earlier operation");
  }

  void look_again() {
    if (in_flight_.empty()) return;
    const steady_time now = std::chrono::steady_clock::now();
    alarm_.set(now + std::clamp((now - last_news_) / 8, look_every, look_at_least_every));
  }

  void free_buffers() noexcept {
    for (const ring_buffer& b : ring_) {
      for (cudaEvent_t e : b.released) {
        if (e != nullptr) cudaEventDestroy(e);
      }
    }
    ring_.clear();
    if (memory_ != nullptr) cudaFree(memory_);
    memory_ = nullptr;
  }

  cuda_choice choice_;
  std::string name_;
  transfer_plan plan_;
  cuda_context context_;
  cudaStream_t copy_stream_ = nullptr;
  cudaStream_t compute_stream_ = nullptr;
  cudaStream_t read_stream_ = nullptr;
  cudaStream_t program_stream_ = nullptr;
  void* memory_ = nullptr;
  std::vector<ring_buffer> ring_;
  std::uint32_t group_jobs_ = 1;
  std::unique_ptr<jpeg_decoder> jpegs_;  // set if the plan decodes
  std::map<std::uint32_t, attached_memory> partitions_;
  std::deque<group> in_flight_;      // at most one job per buffer
  std::vector<cudaEvent_t> events_;  // all events, to be reused
  std::vector<cudaEvent_t> spare_events_;
  std::vector<std::vector<upload_job>> spare_lists_;
  steady_time last_news_{};  // time of the last progress, or when the first job in flight was submitted
  alarm alarm_;
  struct {
    bool opened = false;
    bool warned_pageable = false;
  } has_;
};

}  // namespace

std::unique_ptr<device> make_cuda_device(const cuda_choice& choice) {
  return std::make_unique<cuda_device>(choice);
}

}  // namespace penstock::device
