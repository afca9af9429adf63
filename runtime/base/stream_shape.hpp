// How a stream divides into epochs and batches, for one rank: what the plan works out once and the accounts and
// positions go by. Used by runtime/dataset/order, runtime/schedule and actors/session.
#pragma once

#include <penstock/config.hpp>

#include <cstdint>
#include <string_view>

namespace penstock {

/// As [sampler] uneven spells it; empty for any other number.
[[nodiscard]] constexpr std::string_view name_of(uneven_rule rule) noexcept {
  switch (rule) {
    case uneven_rule::pad: return "pad";
    case uneven_rule::drop: return "drop";
    case uneven_rule::allow: return "allow";
  }
  return {};
}

/// What one rank delivers of an epoch.
struct epoch_share {
  std::uint64_t start = 0;  ///< position in the epoch's order at which the ranks begin to share it out
  /// Number of its first batch. An epoch that begins behind its start has fewer batches; its last one has the same
  /// number as in any other epoch, so that positions in the stream need no exception.
  std::uint64_t first_batch = 0;
  std::uint64_t expected = 0;  ///< samples when nothing fails
  std::uint64_t padded = 0;    ///< of these: repeats that make the ranks' numbers equal
  bool operator==(const epoch_share&) const = default;
};

/// Every epoch is alike, except one at most: the one that a group's state was resumed in.
struct stream_shape {
  std::uint64_t batches_per_epoch = 0;
  epoch_share usual;
  std::uint64_t entered_epoch = 0;
  epoch_share entered{};  ///< start 0: there is none

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
