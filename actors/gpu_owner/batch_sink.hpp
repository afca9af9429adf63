// Where batches go that no program takes: nowhere, to files, or to a device program. Used by `penstock run` when the
// owner is embedded, and by the owner's own process.
#pragma once

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

/// What is done when a process that held the sink dies.
enum class replay_rule : std::uint8_t {
  again,          ///< taking a batch twice is the same as taking it once
  from_snapshot,  ///< restore the last snapshot, then everything since
  never           ///< what it knew is lost
};

/// A larger snapshot is refused: it travels in one message, with every acknowledgement. device_program.hpp promises it
/// to authors of device programs.
inline constexpr std::size_t snapshot_bytes_max = 1U << 20U;

/// One thread, batches in the order of the stream.
class batch_sink {
 public:
  batch_sink() = default;
  batch_sink(const batch_sink&) = delete;
  batch_sink& operator=(const batch_sink&) = delete;
  virtual ~batch_sink() = default;

  /// The batch is taken for good when this returns. Refuses with errc::sink, or with what the device said.
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

/// "null", "npy" (to the folder `out`), "journal:PATH" or "plugin:PATH". Refuses (errc::usage, errc::sink)
/// what it does not know or cannot open. The device must outlive the sink; only its consumer's part is used.
result<std::unique_ptr<batch_sink>> make_sink(const std::string& choice, const std::string& out,
                                              const config& settings, std::shared_ptr<device::device> device);

/// The same checks without the device, without looking into the folder, and without running any of a plugin's code.
result<void> check_sink(const std::string& choice, const std::string& out);

}  // namespace penstock::gpu_owner
