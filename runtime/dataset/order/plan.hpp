// The plan: which samples are in which batch, in which order. Pure: (settings, epoch, seq) -> sample indices,
// with no state and no list of all samples. Used by the scheduler; the same on every machine and after every
// restart.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

struct plan_settings {
  std::uint64_t samples = 0;  ///< in the dataset
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::uint32_t batch_size = 1;
  bool drop_last = false;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
};

/// The plan of one rank. Position p of an epoch's order belongs to rank p mod world_size. Without drop_last
/// the ranks' sets are disjoint and together every sample once, so counts differ by at most one sample, and a
/// rank may have one batch less (or none at all); with drop_last every rank has the same number of batches,
/// all of them full.
class plan {
 public:
  /// Refuses (errc::config) a batch size or world size of 0, a rank outside the world, and 2^63 samples or
  /// more.
  static result<plan> create(const plan_settings& settings);

  [[nodiscard]] const plan_settings& settings() const noexcept { return settings_; }
  /// 0 when the rank has no samples.
  [[nodiscard]] std::uint64_t batches_per_epoch() const noexcept { return batches_; }
  /// Samples of this rank that an epoch delivers when nothing fails; drop_last leftovers are not counted.
  [[nodiscard]] std::uint64_t expected_samples() const noexcept { return expected_; }
  /// Rows of batch `seq`: the batch size, or less in the last one. seq < batches_per_epoch().
  [[nodiscard]] std::uint32_t rows(std::uint64_t seq) const noexcept;

  /// The sample indices of batch `seq` in the order of its rows.
  [[nodiscard]] std::vector<std::uint64_t> batch(std::uint64_t epoch, std::uint64_t seq) const;
  /// The same into memory of the caller: indices.size() == rows(seq).
  void batch(std::uint64_t epoch, std::uint64_t seq, std::span<std::uint64_t> indices) const;

  /// Where row `row` of batch `seq` stands in the epoch's order over all ranks: the key of its replacement
  /// draws.
  [[nodiscard]] std::uint64_t position(std::uint64_t seq, std::uint32_t row) const noexcept {
    return (seq * settings_.batch_size + row) * settings_.world_size + settings_.rank;
  }

  /// Another index for a bad sample (on_bad_sample = "replace"), keyed (seed, epoch, position, try). It may
  /// be the bad one again or another bad one: the caller goes on to the next try, up to replacement_tries.
  [[nodiscard]] std::uint64_t replacement(std::uint64_t epoch, std::uint64_t position_in_epoch,
                                          std::uint32_t try_number) const;

 private:
  explicit plan(const plan_settings& settings) noexcept;

  plan_settings settings_;
  std::uint64_t batches_ = 0;
  std::uint64_t expected_ = 0;
};

/// semantics.md 3: tries are numbered 1 .. 16.
inline constexpr std::uint32_t replacement_tries = 16;

}  // namespace penstock
