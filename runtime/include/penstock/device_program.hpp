// Your own code that runs in the GPU owner and takes every batch on the device, without a copy. Build it as a
// shared library and pass it with `penstock run FILE --sink plugin:PATH`. Needs only this header, no library.
//
//   class brightness final : public penstock::DeviceProgram { void on_batch(...) override { ... } };
//   PENSTOCK_DEVICE_PROGRAM(brightness)
#pragma once

#include <penstock/stream.hpp>
#include <penstock/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace penstock {

class Communicator;  // penstock/nccl.hpp

/// A batch on the device, borrowed for one call. Pointers are device pointers (host pointers on the host
/// device); only work on the call's stream may use them.
struct DeviceBatch {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;              ///< within the epoch
  std::span<const std::uint64_t> samples;  ///< dataset indices of the rows
  std::span<const tensor_view> tensors;
  bool on_host = false;  ///< on the host device: plain memory, no stream
  /// Communicator of the session's group; null unless `[group] communicator` asks for one. Valid during this
  /// call.
  Communicator* communicator = nullptr;

  [[nodiscard]] std::size_t rows() const noexcept { return samples.size(); }
  /// Null if there is no such tensor.
  [[nodiscard]] const tensor_view* find(std::string_view name) const noexcept {
    for (const tensor_view& t : tensors) {
      if (t.name == name) return &t;
    }
    return nullptr;
  }
};

/// Called from one thread, with the batches in order. An exception ends the run with its message and the
/// batch's number. A batch counts as delivered when the work that on_batch() queued on its CUDA stream is done;
/// if the program keeps state, a snapshot must cover the batch, too. If the process dies, a new one gets
/// exactly the batches that were not delivered; it may get some of them a second time.
class DeviceProgram {
 public:
  DeviceProgram() = default;
  DeviceProgram(const DeviceProgram&) = delete;
  DeviceProgram& operator=(const DeviceProgram&) = delete;
  virtual ~DeviceProgram() = default;

  /// Queues work on `stream`; need not wait for it.
  virtual void on_batch(const DeviceBatch& batch, stream_handle stream) = 0;

  /// Override it to return false if the program keeps no state between batches. A program with state but without
  /// snapshots cannot be resumed: the death of its process fails the run.
  [[nodiscard]] virtual bool keeps_state() const { return true; }
  /// Everything that restore() needs, at most 1 MiB. Called every few batches, after their work is done. In a
  /// group with a communicator, a batch counts as delivered when all ranks have a snapshot that covers it.
  [[nodiscard]] virtual std::optional<std::vector<std::byte>> snapshot() { return std::nullopt; }
  /// Called before the first batch in a new process with the last snapshot, if there is one.
  virtual void restore(std::span<const std::byte> state) { static_cast<void>(state); }
  /// Called when the stream is complete, to print results or write files. Not called if the run failed.
  virtual void finish() {}
};

/// Increases when DeviceProgram, DeviceBatch or tensor_view change; programs built for another version are
/// refused.
inline constexpr std::uint32_t device_program_version = 3;

struct device_program_entry {
  std::uint32_t version = device_program_version;
  DeviceProgram* (*make)() = nullptr;  ///< may throw
};

}  // namespace penstock

#define PENSTOCK_DEVICE_PROGRAM(type)                           \
  extern "C" __attribute__((visibility("default")))             \
  const penstock::device_program_entry penstock_device_program{ \
      penstock::device_program_version, []() -> penstock::DeviceProgram* { return new type; }};
