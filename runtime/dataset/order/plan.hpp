// The plan: which samples are in which batch, and in which order. A pure function (settings, epoch, seq) -> sample
// indices, without state and without a list of all samples. It gives the same result on every machine and after every
// restart. Used by the scheduler.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/base/stream_shape.hpp"
#include "runtime/dataset/order/sample_order.hpp"

#include <penstock/config.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace penstock {

struct plan_settings {
  std::uint64_t samples = 0;  ///< positions in an epoch: the samples of the dataset, or those of `order`
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::uint32_t batch_size = 1;
  bool drop_last = false;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  uneven_rule uneven = uneven_rule::pad;
  /// In epoch `entered_epoch`, only the positions from `entered_at` on are divided among the ranks: a group of another
  /// size delivered the earlier ones. 0: every epoch starts at its beginning.
  std::uint64_t entered_epoch = 0;
  std::uint64_t entered_at = 0;
  std::shared_ptr<const sample_order> order{};  ///< null: all samples, as `shuffle` says
};

/// The plan of one rank. An epoch's order is divided from position s on (0, except for an entered epoch): rank r of w has the
/// positions p with (p - s) mod w = r. `uneven` says what to do if they do not divide evenly. `pad` continues with the
/// beginning of the order until every rank has the same number of rows, so at most one row of a rank is a repeat. `drop`
/// omits the surplus. `allow` gives the first ranks one row more, so a rank can have one batch less than another, or none.
/// With drop_last there are only full batches; each rule then gives every rank the same number of batches.
class plan {
 public:
  /// Refuses (errc::config) a batch size or world size of 0, a rank outside the world, and 2^63 samples or more; and
  /// (errc::state_mismatch) an entered epoch that starts past its end.
  static result<plan> create(const plan_settings& settings);

  [[nodiscard]] const plan_settings& settings() const noexcept { return settings_; }
  [[nodiscard]] const stream_shape& shape() const noexcept { return shape_; }
  /// The same plan, but without an entered epoch: that epoch then starts at its beginning like any other.
  [[nodiscard]] plan from_the_beginning() const;
  /// 0 when the rank has no samples.
  [[nodiscard]] std::uint64_t batches_per_epoch() const noexcept { return shape_.batches_per_epoch; }
  /// Samples that a whole epoch delivers to this rank if nothing fails, without those that drop_last omits.
  [[nodiscard]] std::uint64_t expected_samples() const noexcept { return shape_.usual.expected; }
  /// Rows of batch `seq`: the batch size, or less in the last one. shape().of(epoch).first_batch <= seq <
  /// batches_per_epoch(), here and below.
  [[nodiscard]] std::uint32_t rows(std::uint64_t epoch, std::uint64_t seq) const noexcept;

  /// The sample indices of batch `seq` in the order of its rows.
  [[nodiscard]] std::vector<std::uint64_t> batch(std::uint64_t epoch, std::uint64_t seq) const;
  /// Writes these indices to the caller's memory: indices.size() == rows(epoch, seq).
  void batch(std::uint64_t epoch, std::uint64_t seq, std::span<std::uint64_t> indices) const;

  /// The position of row `row` of batch `seq` in the epoch's order over all ranks; keys the draws of its replacements.
  /// A repeated row has the position of its sample.
  [[nodiscard]] std::uint64_t position(std::uint64_t epoch, std::uint64_t seq,
                                       std::uint32_t row) const noexcept;

  /// Another index for a bad sample (on_bad_sample = "replace"), keyed (seed, epoch, position, try). With an `order` it
  /// is the sample at another position, so the order's proportions hold. The new sample may be bad, too: the caller
  /// then tries the next number, up to replacement_tries.
  [[nodiscard]] std::uint64_t replacement(std::uint64_t epoch, std::uint64_t position_in_epoch,
                                          std::uint32_t try_number) const;

 private:
  explicit plan(const plan_settings& settings) noexcept;

  plan_settings settings_;
  stream_shape shape_;
};

/// Rule S10: tries are numbered 1 .. 16.
inline constexpr std::uint32_t replacement_tries = 16;

}  // namespace penstock
