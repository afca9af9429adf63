// Which batches of a stream have been delivered. In strict order, these are all batches before one position.
// With [scheduler] order = "relaxed" (rule S38), some of the `window_max` batches after that position may
// have been delivered, too.
#pragma once

#include "runtime/base/check.hpp"
#include "runtime/base/ids.hpp"

#include <bit>
#include <cstdint>

namespace penstock::schedule {

/// A value of 16 bytes. Not thread-safe.
class delivery_front {
 public:
  /// The largest [scheduler] window.
  static constexpr std::uint32_t window_max = 64;

  /// `early`: bit i stands for the batch at `head` + 1 + i.
  explicit delivery_front(stream_position head = 0, std::uint64_t early = 0) noexcept
      : head_(head), early_(early) {}

  /// The first batch that has not been delivered.
  [[nodiscard]] stream_position head() const noexcept { return head_; }
  /// Bit i stands for the batch at head() + 1 + i.
  [[nodiscard]] std::uint64_t early() const noexcept { return early_; }
  /// How many batches after the head have been delivered.
  [[nodiscard]] std::uint32_t count_early() const noexcept {
    return static_cast<std::uint32_t>(std::popcount(early_));
  }
  [[nodiscard]] bool has(stream_position position) const noexcept {
    if (position <= head_) return position < head_;
    return position - head_ <= window_max && ((early_ >> (position - head_ - 1)) & 1U) != 0;
  }

  void add(stream_position position) {
    PENSTOCK_CHECK(position >= head_ && position - head_ <= window_max && !has(position),
                   "position {} was delivered twice or too early; the first undelivered one is {}", position,
                   head_);
    if (position > head_) {
      early_ |= std::uint64_t{1} << (position - head_ - 1);
      return;
    }
    bool next_is_there = true;
    while (next_is_there) {
      ++head_;
      next_is_there = (early_ & 1U) != 0;
      early_ >>= 1U;
    }
  }

  bool operator==(const delivery_front&) const = default;

 private:
  stream_position head_;
  std::uint64_t early_;
};

}  // namespace penstock::schedule
