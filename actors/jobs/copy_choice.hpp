// Chooses the cheaper kind of copy for large arguments: plain, or one that bypasses the caches (streaming_copy). Each
// thread that copies them has one. Pure: times are arguments.
//
// A plain copy leaves the argument in the cache, where the worker finds it if it runs on the same core, or on
// one that shares that cache. Otherwise each cache line is fetched from the other core twice, by the copy and
// by the worker, and the copy takes three to five times as long. Threads move between cores all the time (and
// under a virtual machine, so do the cores), so this class measures instead of predicting.
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

  /// How to make the next copy: the cheaper way. Every `retry_every`th copy uses the other way, to notice
  /// when that becomes cheaper.
  [[nodiscard]] way next() noexcept {
    retries_ = ++copies_ % retry_every == 0;
    if (per_byte_[0] < 0) return way::plain;
    if (per_byte_[1] < 0) return way::streaming;
    const bool streaming = per_byte_[0] > per_byte_[1] * readers_share;
    return streaming != retries_ ? way::streaming : way::plain;
  }

  /// A copy made this way took this much CPU time.
  void took(way how, std::size_t bytes, nanoseconds time) noexcept {
    if (bytes == 0) return;
    double& known = per_byte_[static_cast<std::size_t>(how)];
    const double now = static_cast<double>(time.count()) / static_cast<double>(bytes);
    const bool news = known < 0 || retries_;  // the old measurement of this way is out of date
    known = news ? now : known + (now - known) / 4;
  }

 private:
  static constexpr std::uint64_t retry_every = 64;
  /// After a streaming copy the worker reads the argument from memory. For 1 MB that takes 20 us more than
  /// from a shared cache, a third of the time of the copy.
  static constexpr double readers_share = 4.0 / 3;

  std::array<double, 2> per_byte_{-1, -1};  // nanoseconds, moving averages; negative: not tried yet
  std::uint64_t copies_ = 0;
  bool retries_ = false;
};

}  // namespace penstock::jobs
