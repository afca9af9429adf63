// The work on one lease: each sample is loaded straight into its row of the slot, and the flight recorder
// knows which. A plain class; the loader actor feeds it.
#pragma once

#include "actors/child/cuda_watch.hpp"
#include "actors/protocol/messages.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/layout.hpp"

#include <penstock/dataset.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>

namespace penstock::loader {

/// Everything outlives the runner; one thread.
struct lease_context {
  Dataset& dataset;
  const arena::slots_view& slots;
  arena::flight_writer& flight;
  const batch_layout& layout;
  std::span<const tensor_spec> specs;  ///< as described: what typed access to the slots is checked against
  std::uint64_t seed = 0;
  worker_ref me;
  const std::atomic<bool>& stopping;  ///< set from another thread: finish the sample at hand and return
};

class lease_runner {
 public:
  /// `pause` waits between attempts at storage that said "not now".
  explicit lease_runner(const lease_context& context, std::function<void(std::chrono::milliseconds)> pause);

  /// Fills the lease's slot. Exceptions of the dataset become failures of their samples. Nothing is returned
  /// when the worker was told to stop before the batch was finished. A lease that does not fit (a slot or a
  /// number of samples that does not exist) is refused with errc::protocol.
  result<std::optional<protocol::batch_loaded>> run(const protocol::load_batch& lease);

  /// User code loaded CUDA into this process: the sample that did it is a failure that says so, and the
  /// process should be replaced. Noticed after each sample; final.
  [[nodiscard]] bool cuda_loaded() const noexcept { return cuda_.loaded(); }

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
};

}  // namespace penstock::loader
