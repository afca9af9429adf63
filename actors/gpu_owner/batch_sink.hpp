// Sinks for batches that no embedding program takes: null, files, or a device program. Used by `penstock
// run` with an embedded owner, and by the owner's own process.
#pragma once

#include "actors/gpu_owner/communicator_side.hpp"
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

/// What to do when the process that holds the sink dies.
enum class replay_rule : std::uint8_t {
  again,          ///< taking a batch twice is the same as taking it once
  from_snapshot,  ///< restore the last snapshot, then everything since
  never           ///< its state is lost
};

/// Larger snapshots are refused, because every acknowledgement carries one in a single message. Documented in
/// device_program.hpp.
inline constexpr std::size_t snapshot_bytes_max = 1U << 20U;

/// Used from one thread; batches come in the order of the stream.
class batch_sink {
 public:
  batch_sink() = default;
  batch_sink(const batch_sink&) = delete;
  batch_sink& operator=(const batch_sink&) = delete;
  virtual ~batch_sink() = default;

  /// When this returns, the batch is delivered. Refuses with errc::sink, or with the device's failure.
  virtual result<void> take(const Batch& batch) = 0;
  [[nodiscard]] virtual replay_rule replay() const { return replay_rule::again; }
  /// At most snapshot_bytes_max.
  virtual result<std::vector<std::byte>> snapshot() { return std::vector<std::byte>(); }
  virtual result<void> restore(std::span<const std::byte> state) {
    static_cast<void>(state);
    return {};
  }
  /// The stream is over.
  virtual result<void> finish() { return {}; }
};

/// "null", "npy" (to the folder `out`), "journal:PATH" or "plugin:PATH". Refuses (errc::usage, errc::sink) sinks that
/// it does not know or cannot open. The device must outlive the sink, which uses only the consumer's part of
/// it. `communicator`: for a device program, if its group has one.
result<std::unique_ptr<batch_sink>> make_sink(const std::string& choice, const std::string& out,
                                              const config& settings, std::shared_ptr<device::device> device,
                                              std::shared_ptr<communicator_side> communicator = nullptr);

/// The same checks without a device, without reading the folder, and without running a plugin's code.
result<void> check_sink(const std::string& choice, const std::string& out);

}  // namespace penstock::gpu_owner
