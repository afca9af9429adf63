// The synthetic dataset: samples without storage, for benchmarks and for injecting faults. Runs in a worker.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <cstddef>
#include <map>
#include <span>
#include <unordered_set>
#include <vector>

namespace penstock {

/// One tensor, `data`. A sample's bytes depend only on (seed, epoch, index), in the way that [dataset] fill
/// selects:
///
///   stamp   the index, eight times little-endian, at the beginning of each 4 KiB of the sample; else zeros
///   memset  every byte is the low byte of the index
///   memcpy  copied from a fixed pseudo-random buffer of up to 4 MiB, from 64 * index on, wrapping around
///   random  Philox, keyed (seed, epoch, index)
///
/// `stamp` is as cheap as possible: a slot's row is zeroed only when this dataset first sees its address; after that, the
/// stamps of each sample overwrite those of the last one. This requires that nothing else writes to the slot and that rows
/// keep their addresses, which the arena guarantees. Other memory must not be freed and reused during the dataset's lifetime.
class synthetic_dataset final : public Dataset {
 public:
  /// Refuses (errc::dataset) a configuration that gives neither or both of bytes_per_sample and shape.
  static result<dataset_description> describe(const dataset_config& config);
  /// `config` must be one that describe() accepts. `rows_are_own`: nothing else writes to the rows of the slots.
  explicit synthetic_dataset(const dataset_config& config, bool rows_are_own = true);

  dataset_description describe() override;
  void setup(const worker_context& context) override;
  /// First injects this sample's faults, then waits, works and fills.
  void load(const sample_request& request, const sample_slot& slot) override;

 private:
  void fill(const sample_request& request, std::span<std::byte> out);
  void stamp(std::uint64_t index, std::span<std::byte> out);

  dataset_config config_;
  bool rows_are_own_;
  std::uint64_t seed_ = 0;
  std::multimap<std::uint64_t, fault_config> faults_;  ///< by sample; faults of one sample are in the order of the config
  std::unordered_set<const std::byte*> zeroed_;  ///< only for `stamp`: rows that are known to be zero between stamps
  std::vector<std::byte> source_;                ///< memcpy
};

/// Injects a fault. Returns only after leak (each call touches and keeps 64 MiB of private memory), slow, and stop once
/// the process is continued. raise throws std::runtime_error.
void inject(const fault_config& fault);

}  // namespace penstock
