// Processes one lease: loads each sample directly into its row of the slot, and records in the flight
// recorder which sample it is loading. A plain class, driven by the loader actor.
#pragma once

#include "actors/child/cuda_watch.hpp"
#include "actors/child/link_watch.hpp"
#include "actors/child/sample_meter.hpp"
#include "actors/protocol/messages.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/layout.hpp"

#include <penstock/dataset.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace penstock::loader {

/// Everything must outlive the runner. Not thread-safe.
struct lease_context {
  Dataset& dataset;
  const arena::slots_view& slots;
  arena::flight_writer& flight;
  const batch_layout& layout;
  std::span<const tensor_spec> specs;  ///< from the dataset's description; used to check typed access to the slots
  std::uint64_t seed = 0;
  worker_ref me;
  const std::atomic<bool>& stopping;  ///< set by another thread: return after the current sample
  /// Set with [loader] hedge: whether the lease is no longer needed. The report then also has every sample's time.
  std::function<bool(const protocol::load_batch&)> dropped{};
  /// Set for a custom dataset, whose code may close the link.
  const child::link_watch* link = nullptr;
};

class lease_runner {
 public:
  /// `pause` waits between attempts to read storage that reported a transient error.
  explicit lease_runner(const lease_context& context, std::function<void(std::chrono::milliseconds)> pause);

  /// Fills the lease's slot, unless the lease is dropped: then the report has no rows. Exceptions from the dataset become
  /// failures of their samples. Empty if a request to stop came before the batch was finished. Refuses (errc::protocol) a lease
  /// with a nonexistent slot or an impossible number of samples.
  result<std::optional<protocol::batch_loaded>> run(const protocol::load_batch& lease);

  /// Whether user code loaded CUDA into this process; if so, the process should be replaced. The sample that
  /// did so fails with that reason. Checked after each sample; never reset.
  [[nodiscard]] bool cuda_loaded() const noexcept { return cuda_.found(); }

 private:
  [[nodiscard]] std::string load_row(const protocol::wire_sample& sample, std::uint64_t epoch,
                                     std::span<std::byte> slot, std::uint32_t row);
  void finish_lengths(std::span<std::byte> slot, std::uint32_t row,
                      std::span<const sample_length> lengths) const;
  [[nodiscard]] std::string collate(std::uint64_t epoch, std::span<std::byte> slot,
                                    std::span<const std::uint64_t> samples);
  void trim(std::span<std::byte> slot, std::uint32_t rows) const;

  lease_context context_;
  std::function<void(std::chrono::milliseconds)> pause_;
  child::cuda_watch cuda_;
  child::sample_meter times_;
  std::vector<std::span<std::byte>> tensors_;  ///< tensors of the row being loaded
  std::vector<sample_length> lengths_;         ///< lengths in the same row
};

}  // namespace penstock::loader
