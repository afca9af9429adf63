// Which kind of copy is cheaper for large arguments at present: plain, or past the caches (streaming_copy). Used by
// each thread that copies them. Pure: times are arguments.
//
// A plain copy leaves the argument in the cache, where the worker finds it if it runs on the same core, or on one that
// shares that cache. Otherwise each line is fetched from the other core twice, by the copy and by the worker, and the copy
// takes three to five times as long. Where threads run changes all the time (and under a virtual machine so do the
// cores), so this is measured, not derived.
#pragma once

#include "runtime/base/clock.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace penstock::jobs {

class copy_choice {
 public:
  enum class way : std::uint8_t { plain, streaming };

  /// How to make the next copy: the cheaper way, but each `retry_every`th copy the other one, to notice when that changes.
  [[nodiscard]] way next() noexcept {
    retries_ = ++copies_ % retry_every == 0;
    if (per_byte_[0] < 0) return way::plain;
    if (per_byte_[1] < 0) return way::streaming;
    const bool streaming = per_byte_[0] > per_byte_[1] * readers_share;
    return streaming != retries_ ? way::streaming : way::plain;
  }

  /// A copy made this way took so much time of its thread.
  void took(way how, std::size_t bytes, nanoseconds time) noexcept {
    if (bytes == 0) return;
    double& known = per_byte_[static_cast<std::size_t>(how)];
    const double now = static_cast<double>(time.count()) / static_cast<double>(bytes);
    const bool news = known < 0 || retries_;  // what was known of this way is old
    known = news ? now : known + (now - known) / 4;
  }

 private:
  static constexpr std::uint64_t retry_every = 64;
  /// After a streaming copy the worker reads the argument from memory: for 1 MB 20 us more than from a shared cache, which
  /// is a third of what the copy takes.
  static constexpr double readers_share = 4.0 / 3;

  std::array<double, 2> per_byte_{-1, -1};  // nanoseconds, moving averages; negative: not tried
  std::uint64_t copies_ = 0;
  bool retries_ = false;
};

}  // namespace penstock::jobs
