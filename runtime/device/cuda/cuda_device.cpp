#include "runtime/device/cuda/cuda_device.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/cuda/convert.hpp"
#include "runtime/device/cuda/cuda_error.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <map>

namespace penstock::device {
namespace {

std::string uuid_text(const cudaUUID_t& uuid) {
  const auto byte = [&](int i) { return static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])); };
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", byte(i));
  }
  return text;
}

std::string list_of_devices(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp facts{};
    if (cudaGetDeviceProperties(&facts, i) != cudaSuccess) continue;
    list += fmt::format("{}cuda:{} {} {}", list.empty() ? "" : ", ", i, facts.name, uuid_text(facts.uuid));
  }
  return list.empty() ? "none" : list;
}

/// Makes our context current for one call and leaves the caller's thread as it was. The driver's stack is
/// used because cudaSetDevice, called to restore, would create a context on whatever device the caller had
/// selected.
class current_context {
 public:
  struct entry_points {
    CUresult (*push)(CUcontext) = nullptr;
    CUresult (*pop)(CUcontext*) = nullptr;
  };
  current_context(const entry_points& driver, CUcontext context) : driver_(driver) { driver_.push(context); }
  ~current_context() {
    CUcontext ours{};
    driver_.pop(&ours);
  }
  current_context(const current_context&) = delete;
  current_context& operator=(const current_context&) = delete;

 private:
  const entry_points& driver_;
};

kernel_type kernel_type_of(dtype type) {
  switch (type) {
    case dtype::uint8: return kernel_type::uint8;
    case dtype::bfloat16: return kernel_type::bfloat16;
    case dtype::float32: return kernel_type::float32;
    default: return kernel_type::float16;
  }
}

class cuda_device final : public device {
 public:
  explicit cuda_device(cuda_choice choice) : choice_(std::move(choice)) {}
  ~cuda_device() override { close(); }

  result<identity> open() override {
    int count = 0;
    if (const auto status = cudaGetDeviceCount(&count); status != cudaSuccess) {
      return refuse_cuda(status, "looking for CUDA devices");
    }
    auto ordinal = select(count);
    if (!ordinal) return tl::unexpected(std::move(ordinal.error()));
    if (auto ok = call(cudaSetDevice(*ordinal), "selecting the device"); !ok)
      return tl::unexpected(ok.error());
    if (auto ok = call(cudaFree(nullptr), "creating the context"); !ok) return tl::unexpected(ok.error());
    cudaDeviceProp facts{};
    if (auto ok = call(cudaGetDeviceProperties(&facts, *ordinal), "asking for the device's properties");
        !ok) {
      return tl::unexpected(ok.error());
    }
    name_ = facts.name;
    if (auto ok = find_driver(); !ok) return tl::unexpected(ok.error());
    for (cudaStream_t* s : {&copy_stream_, &compute_stream_, &wake_stream_}) {
      if (auto ok = call(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), "creating a stream"); !ok) {
        return tl::unexpected(ok.error());
      }
    }
    opened_ = true;
    return identity{"cuda", name_, uuid_text(facts.uuid)};
  }

  result<bool> attach(std::uint32_t partition, std::span<std::byte> memory) override {
    const auto status = cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
    if (status == cudaSuccess) {
      partitions_[partition] = {memory, true};
      return true;
    }
    cudaGetLastError();
    if (is_sticky(status)) return refuse_cuda(status, "page-locking memory, at or before");
    // Slower, not wrong (S1.6).
    if (!warned_pageable_) {
      log::warn(
          "gpu",
          "{} of the arena could not be page-locked ({}): copies will be slower. Usual cause: a low limit "
          "on locked memory (ulimit -l)",
          bytes_for_people(memory.size()), cudaGetErrorString(status));
      warned_pageable_ = true;
    }
    partitions_[partition] = {memory, false};
    return false;
  }

  result<void> detach(std::uint32_t partition) override {
    const auto it = partitions_.find(partition);
    if (it == partitions_.end()) return {};
    const bool registered = it->second.registered;
    std::byte* const address = it->second.memory.data();
    partitions_.erase(it);
    if (!registered) return {};
    return call(cudaHostUnregister(address), fmt::format("unregistering partition {}", partition));
  }

  result<void> allocate(const transfer_plan& plan, std::uint32_t buffers) override {
    plan_ = plan;
    const std::uint64_t one = round_up(plan.buffer_bytes, layout_alignment) + plan.staging_bytes();
    const std::uint64_t all = std::max<std::uint64_t>(one * buffers, 1);
    if (const auto status = cudaMalloc(&memory_, all); status != cudaSuccess) {
      cudaGetLastError();
      std::size_t free = 0;
      std::size_t total = 0;
      cudaMemGetInfo(&free, &total);
      auto no =
          cuda_failure(status, fmt::format("allocating {} buffers of {} on {} (asked {}, free {} of {})",
                                           buffers, bytes_for_people(one), name_, bytes_for_people(all),
                                           bytes_for_people(free), bytes_for_people(total)));
      return tl::unexpected(std::move(no));
    }
    ring_.resize(buffers);
    for (std::uint32_t i = 0; i < buffers; ++i) {
      ring_[i].data = static_cast<std::byte*>(memory_) + i * one;
      ring_[i].staging = ring_[i].data + round_up(plan.buffer_bytes, layout_alignment);
      for (cudaEvent_t* e : {&ring_[i].copied, &ring_[i].ready, &ring_[i].released}) {
        if (auto ok = call(cudaEventCreateWithFlags(e, cudaEventDisableTiming), "creating an event"); !ok)
          return ok;
      }
    }
    return {};
  }

  result<void> submit(const upload_job& job) override {
    const auto memory = partitions_.find(job.partition);
    PENSTOCK_CHECK(memory != partitions_.end(), "partition {}", job.partition);
    PENSTOCK_CHECK(job.buffer < ring_.size(), "buffer {} of {}", job.buffer, ring_.size());
    PENSTOCK_CHECK(job.slot_offset + plan_.slot.used_bytes(job.rows) <= memory->second.memory.size(),
                   "slot at {}", job.slot_offset);
    ring_buffer& b = ring_[job.buffer];
    const std::byte* slot = memory->second.memory.data() + job.slot_offset;
    const auto what = [&] { return fmt::format("uploading into buffer {}, at or before", job.buffer); };

    if (b.release_pending) {
      if (auto ok = call(cudaStreamWaitEvent(copy_stream_, b.released, 0), what()); !ok) return ok;
      b.release_pending = false;
    }
    if (auto ok = copy(slot, b, job.rows); !ok) return ok;
    if (auto ok = call(cudaEventRecord(b.copied, copy_stream_), what()); !ok) return ok;
    cudaEvent_t last = b.copied;
    if (!plan_.conversions.empty()) {
      if (auto ok = convert(b, job.rows); !ok) return ok;
      if (auto ok = call(cudaEventRecord(b.ready, compute_stream_), what()); !ok) return ok;
      last = b.ready;
    }
    in_flight_.push_back({job.upload, b.copied, last, false});
    arm();
    return {};
  }

  result<std::vector<progress>> poll() override {
    std::vector<progress> news;
    armed_.store(false, std::memory_order_release);
    for (flight& f : in_flight_) {
      if (f.slot_is_free) continue;
      auto done = is_done(f.copied);
      if (!done) return tl::unexpected(std::move(done.error()));
      if (!*done) break;
      f.slot_is_free = true;
      news.push_back({f.upload, stage::copied});
    }
    while (!in_flight_.empty() && in_flight_.front().slot_is_free) {
      auto done = is_done(in_flight_.front().ready);
      if (!done) return tl::unexpected(std::move(done.error()));
      if (!*done) break;
      news.push_back({in_flight_.front().upload, stage::ready});
      in_flight_.pop_front();
    }
    arm();
    return news;
  }

  void on_progress(std::function<void()> waker) override { waker_ = std::move(waker); }

  void close() noexcept override {
    if (!opened_) return;
    opened_ = false;
    // Errors are old news here: whoever could act on them has heard them from poll().
    for (cudaStream_t s : {copy_stream_, compute_stream_, wake_stream_}) {
      cudaStreamSynchronize(s);
      cudaStreamDestroy(s);
    }
    for (const auto& [number, p] : partitions_) {
      if (p.registered) cudaHostUnregister(p.memory.data());
    }
    partitions_.clear();
    for (const ring_buffer& b : ring_) {
      for (cudaEvent_t e : {b.copied, b.ready, b.released}) {
        if (e != nullptr) cudaEventDestroy(e);
      }
    }
    ring_.clear();
    if (memory_ != nullptr) cudaFree(memory_);
    memory_ = nullptr;
  }

  [[nodiscard]] std::byte* address(std::uint32_t buffer) const override { return ring_[buffer].data; }

  result<void> read_back(std::uint32_t buffer, std::uint64_t offset, std::span<std::byte> to) override {
    const current_context ours(driver_, context_);
    return call(cudaMemcpy(to.data(), ring_[buffer].data + offset, to.size(), cudaMemcpyDeviceToHost),
                "reading a batch back, at or before");
  }

  result<void> wait(std::uint32_t buffer, stream_handle stream) override {
    const current_context ours(driver_, context_);
    const ring_buffer& b = ring_[buffer];
    return call(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.native),
                                    plan_.conversions.empty() ? b.copied : b.ready, 0),
                "making a stream wait for a batch, at or before");
  }

  result<void> release(std::uint32_t buffer, stream_handle stream) override {
    const current_context ours(driver_, context_);
    ring_[buffer].release_pending = true;
    return call(cudaEventRecord(ring_[buffer].released, static_cast<cudaStream_t>(stream.native)),
                "releasing a batch, at or before");
  }

  result<void> finish(stream_handle stream) override {
    const current_context ours(driver_, context_);
    return call(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.native)),
                "waiting for the work of a stream, at or before");
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
    cudaEvent_t copied = nullptr;
    cudaEvent_t ready = nullptr;
    cudaEvent_t released = nullptr;  // recorded on the consumer's stream
    bool release_pending = false;    // handed from consumer to owner together with the buffer, by message
  };
  struct flight {
    std::uint64_t upload = 0;
    cudaEvent_t copied = nullptr;
    cudaEvent_t ready = nullptr;
    bool slot_is_free = false;
  };

  result<void> call(cudaError_t status, std::string_view what) {
    if (status == cudaSuccess) return {};
    cudaGetLastError();
    return refuse_cuda(status, what);
  }

  result<bool> is_done(cudaEvent_t event) {
    const auto status = cudaEventQuery(event);
    if (status == cudaSuccess) return true;
    if (status == cudaErrorNotReady) return false;
    return refuse_cuda(status, "waiting for a copy or a kernel, at or before");
  }

  result<int> select(int count) const {
    if (choice_.uuid) {
      for (int i = 0; i < count; ++i) {
        cudaDeviceProp facts{};
        if (cudaGetDeviceProperties(&facts, i) == cudaSuccess &&
            uuid_text(facts.uuid).starts_with(*choice_.uuid))
          return i;
      }
      return refuse(errc::device_unavailable, "no GPU has the UUID {}; there is: {}", *choice_.uuid,
                    list_of_devices(count));
    }
    const auto ordinal = static_cast<int>(choice_.ordinal.value_or(0));
    if (ordinal < count) return ordinal;
    return refuse(errc::device_unavailable, "cuda:{} does not exist; there is: {}", ordinal,
                  list_of_devices(count));
  }

  result<void> find_driver() {
    cudaDriverEntryPointQueryResult found{};
    const auto entry = [&](const char* name, auto& function) {
      return call(cudaGetDriverEntryPointByVersion(name, reinterpret_cast<void**>(&function), 12000,
                                                   cudaEnableDefault, &found),
                  fmt::format("looking up {} in the driver", name));
    };
    CUresult (*get_current)(CUcontext*) = nullptr;
    if (auto ok = entry("cuCtxGetCurrent", get_current); !ok) return ok;
    if (auto ok = entry("cuCtxPushCurrent", driver_.push); !ok) return ok;
    if (auto ok = entry("cuCtxPopCurrent", driver_.pop); !ok) return ok;
    get_current(&context_);
    return {};
  }

  result<void> copy(const std::byte* slot, const ring_buffer& b, std::uint32_t rows) {
    const auto enqueue = [&](std::byte* to, const std::byte* from, std::uint64_t bytes) -> result<void> {
      if (bytes == 0) return {};
      return call(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, copy_stream_),
                  fmt::format("copying {} to {}, at or before", bytes_for_people(bytes), name_));
    };
    if (plan_.staged) {
      // The whole batch in one copy; what needs no conversion is moved on the device, where that costs
      // nothing.
      if (auto ok = enqueue(b.staging, slot, plan_.slot.used_bytes(rows)); !ok) return ok;
      return {};
    }
    for (const copy_step& step : plan_.copies) {
      if (auto ok = enqueue(b.data + step.to, slot + step.from, step.row_bytes * rows); !ok) return ok;
    }
    return {};
  }

  result<void> convert(const ring_buffer& b, std::uint32_t rows) {
    if (rows == 0) return {};
    if (auto ok = call(cudaStreamWaitEvent(compute_stream_, b.copied, 0), "ordering a kernel after its copy");
        !ok)
      return ok;
    for (const copy_step& step : plan_.copies) {
      if (auto ok = call(cudaMemcpyAsync(b.data + step.to, b.staging + step.from, step.row_bytes * rows,
                                         cudaMemcpyDeviceToDevice, compute_stream_),
                         "moving a tensor, at or before");
          !ok) {
        return ok;
      }
    }
    for (const convert_step& step : plan_.conversions) {
      kernel_step k;
      k.from = reinterpret_cast<const std::uint8_t*>(b.staging + step.from);
      k.to = b.data + step.to;
      if (step.flip_flags) k.flip_flags = reinterpret_cast<const std::uint8_t*>(b.staging + *step.flip_flags);
      k.rows = rows;
      k.height = step.height;
      k.width = step.width;
      k.channels = step.channels;
      k.planar = step.layout == image_layout::nchw;
      k.type = kernel_type_of(step.type);
      std::copy(step.scale.begin(), step.scale.end(), k.scale);
      std::copy(step.shift.begin(), step.shift.end(), k.shift);
      if (auto ok = call(launch_convert(k, compute_stream_), "converting a batch, at or before"); !ok)
        return ok;
    }
    return {};
  }

  // One host function at a time, on a stream of its own: on the copy stream it would stop the next copy until
  // the host has run it (measured: 64 KiB copies fall from 18 to 1.9 GB/s).
  void arm() {
    if (!waker_ || in_flight_.empty() || armed_.exchange(true, std::memory_order_acq_rel)) return;
    const auto pending = std::ranges::find_if(in_flight_, [](const flight& f) { return !f.slot_is_free; });
    const cudaEvent_t next = pending == in_flight_.end() ? in_flight_.front().ready : pending->copied;
    if (cudaStreamWaitEvent(wake_stream_, next, 0) != cudaSuccess ||
        cudaLaunchHostFunc(
            wake_stream_, [](void* self) { static_cast<cuda_device*>(self)->waker_(); }, this) !=
            cudaSuccess) {
      cudaGetLastError();
      waker_();  // poll() will find out what is wrong
    }
  }

  cuda_choice choice_;
  std::string name_;
  transfer_plan plan_;
  current_context::entry_points driver_;
  CUcontext context_ = nullptr;
  cudaStream_t copy_stream_ = nullptr;
  cudaStream_t compute_stream_ = nullptr;
  cudaStream_t wake_stream_ = nullptr;
  void* memory_ = nullptr;
  std::vector<ring_buffer> ring_;
  std::map<std::uint32_t, attached_memory> partitions_;
  std::deque<flight> in_flight_;  // at most one a buffer
  std::function<void()> waker_;
  std::atomic<bool> armed_{false};
  bool opened_ = false;
  bool warned_pageable_ = false;
};

}  // namespace

std::unique_ptr<device> make_cuda_device(const cuda_choice& choice) {
  return std::make_unique<cuda_device>(choice);
}

bool cuda_is_there() {
  int count = 0;
  const auto status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  // Anything but "no driver" and "no device" is a broken GPU: choose it, so that opening it says what is
  // wrong.
  return status != cudaErrorInsufficientDriver && status != cudaErrorNoDevice &&
         (status != cudaSuccess || count > 0);
}

}  // namespace penstock::device
