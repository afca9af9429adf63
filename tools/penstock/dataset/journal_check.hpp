// Compares the batches of a journal with the same batches as they load today: which differ, and because of which samples. Also finds
// batches that the journal lacks or has twice. Pure. Used by `penstock replay --verify`.
#pragma once

#include "tools/penstock/chaos/stream_check.hpp"
#include "tools/penstock/dataset/epoch_extent.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <vector>

namespace penstock::cli {

/// A batch as it loads today.
struct batch_today {
  std::vector<std::uint64_t> samples;
  std::uint64_t digest = 0;
};

struct changed_batch {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint64_t was = 0;
  std::uint64_t is = 0;
  std::vector<std::uint64_t> samples;  ///< the samples of today's rows, if they equal the journal's; else empty
  std::vector<std::uint64_t> gone;     ///< in the journal's batch, not in today's
  std::vector<std::uint64_t> come;     ///< in today's batch, not in the journal's
};

/// Consecutive batches that a journal lacks between its first batch and its last one.
struct missing_batches {
  std::uint64_t epoch = 0;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  bool operator==(const missing_batches&) const = default;
};

class journal_check {
 public:
  static constexpr std::size_t gaps_max = 10'000;

  /// Batches in the order of the stream, each once: the last line about it counts. A journal has two lines about a
  /// batch that was delivered again after its owner's death, or after its run was killed and resumed.
  explicit journal_check(std::span<const delivered_batch> lines);

  [[nodiscard]] const std::vector<delivered_batch>& batches() const noexcept { return batches_; }
  /// How many batches have more than one line.
  [[nodiscard]] std::uint64_t repeated() const noexcept { return repeated_; }
  /// Batches whose lines in the journal have different samples or digests, each once.
  [[nodiscard]] const std::vector<delivered_batch>& contradictory() const noexcept { return contradictory_; }
  /// The gaps in the order of the stream, at most about gaps_max, because a damaged journal may name an epoch far in
  /// the future.
  [[nodiscard]] std::vector<missing_batches> missing(const std::function<epoch_extent(std::uint64_t)>& extent_of) const;

  /// The end of the longest run of batches from `begin` that follow one another in the stream: an index into batches(). It may
  /// span epochs, but not the border of one that was entered midway: a session begins such an epoch only from a state.
  [[nodiscard]] std::size_t end_of_run(std::size_t begin, const std::function<epoch_extent(std::uint64_t)>& extent_of) const;

  /// Takes batch `which` of batches() as it loads today.
  void take(std::size_t which, const batch_today& today);

  [[nodiscard]] const std::vector<changed_batch>& changed() const noexcept { return changed_; }
  /// Samples that occur in changed batches and in no unchanged one. The changed samples are among them, unless a
  /// change shows in only some epochs.
  [[nodiscard]] std::set<std::uint64_t> suspects() const;

 private:
  /// Adds what is missing between a batch and the one before it.
  void add_gaps(std::vector<missing_batches>& gaps, std::size_t before_this,
                const std::function<epoch_extent(std::uint64_t)>& extent_of) const;

  std::vector<delivered_batch> batches_;
  std::uint64_t repeated_ = 0;
  std::vector<delivered_batch> contradictory_;
  std::vector<changed_batch> changed_;
  std::set<std::uint64_t> unchanged_samples_;
};

}  // namespace penstock::cli
