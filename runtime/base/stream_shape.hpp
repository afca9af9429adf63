// How a stream divides into epochs and batches, for one rank. The plan computes it once. Used by
// runtime/dataset/order, runtime/schedule and actors/session, for totals and positions.
#pragma once

#include <penstock/config.hpp>

#include <cstdint>
#include <string_view>

namespace penstock {

/// The spelling in [sampler] uneven; empty for a value that is not an enumerator.
[[nodiscard]] constexpr std::string_view name_of(uneven_rule rule) noexcept {
  switch (rule) {
    case uneven_rule::pad: return "pad";
    case uneven_rule::drop: return "drop";
    case uneven_rule::allow: return "allow";
  }
  return {};
}

/// The part of an epoch that one rank delivers.
struct epoch_share {
  std::uint64_t start = 0;  ///< where in the epoch's order it begins; the ranks divide the samples from here on
  /// The number of its first batch. An epoch entered in the middle has fewer batches, but its last batch has
  /// the usual number, so stream positions need no special case.
  std::uint64_t first_batch = 0;
  std::uint64_t expected = 0;  ///< samples when nothing fails
  std::uint64_t padded = 0;    ///< how many of these are repeats, added so that all ranks have equally many samples
  bool operator==(const epoch_share&) const = default;
};

/// All epochs have the same shape, except for at most one: the epoch in which a group's state was resumed.
struct stream_shape {
  std::uint64_t batches_per_epoch = 0;
  epoch_share usual;
  std::uint64_t entered_epoch = 0;
  epoch_share entered{};  ///< `start` is 0 if there is no such epoch

  [[nodiscard]] bool has_entered() const noexcept { return entered.start != 0; }
  [[nodiscard]] const epoch_share& of(std::uint64_t epoch) const noexcept {
    return has_entered() && epoch == entered_epoch ? entered : usual;
  }
  [[nodiscard]] std::uint64_t batches_of(std::uint64_t epoch) const noexcept {
    return batches_per_epoch - of(epoch).first_batch;
  }
  bool operator==(const stream_shape&) const = default;
};

}  // namespace penstock
