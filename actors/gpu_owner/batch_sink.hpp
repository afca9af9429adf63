// Sinks for sessions whose program takes no batches itself: null, files, or a device program. Used by
// `penstock run` with an embedded owner, and by the owner's own process.
#pragma once

#include "actors/gpu_owner/communicator_side.hpp"
#include "runtime/base/output_lock.hpp"
#include "runtime/base/result.hpp"
#include "runtime/device/device.hpp"

#include <penstock/batch.hpp>
#include <penstock/config.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::gpu_owner {

/// How to recover when the process that holds the sink dies.
enum class replay_rule : std::uint8_t {
  again,          ///< taking a batch twice has the effect of taking it once
  from_snapshot,  ///< restore the last snapshot, then repeat everything since
  never           ///< the sink's state is lost
};

/// Larger snapshots are refused, because every acknowledgement carries one in a single message.
/// device_program.hpp documents the limit.
inline constexpr std::size_t snapshot_bytes_max = 1U << 20U;

/// Used from one thread; batches arrive in stream order.
class batch_sink {
 public:
  batch_sink() = default;
  batch_sink(const batch_sink&) = delete;
  batch_sink& operator=(const batch_sink&) = delete;
  virtual ~batch_sink() = default;

  /// Returns once the batch is delivered. Fails with errc::sink, or with the device's failure.
  virtual result<void> take(const Batch& batch) = 0;
  [[nodiscard]] virtual replay_rule replay() const { return replay_rule::again; }
  /// The sink's state, in at most snapshot_bytes_max bytes.
  virtual result<std::vector<std::byte>> snapshot() { return std::vector<std::byte>(); }
  virtual result<void> restore(std::span<const std::byte> state) {
    static_cast<void>(state);
    return {};
  }
  /// Called once, when the stream has ended.
  virtual result<void> finish() { return {}; }
};

/// Makes the sink "null", "npy" (to the folder `out`), "journal:PATH" or "plugin:PATH". Refuses (errc::usage,
/// errc::sink) an unknown sink, or one that cannot be opened. The sink uses only the consumer's part of the
/// device. The device must outlive it. `communicator`: for a device program, if its group has one.
result<std::unique_ptr<batch_sink>> make_sink(const std::string& choice, const std::string& out,
                                              const config& settings, std::shared_ptr<device::device> device,
                                              std::shared_ptr<communicator_side> communicator = nullptr);

/// Refuses (errc::usage) an unknown sink, and a folder for a sink that writes to none. Accesses no files.
result<void> check_sink_choice(const std::string& choice, const std::string& out);

/// What make_sink() can check without a device, without reading the folder and without running a plugin's code.
result<void> check_sink(const std::string& choice, const std::string& out);

/// Locks the journal or the folder for this process, even if another process writes the batches. Refuses
/// (errc::io) if another run is writing there.
result<output_lock> lock_sink(const std::string& choice, const std::string& out);

}  // namespace penstock::gpu_owner
