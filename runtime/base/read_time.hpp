// How long this process has waited for storage. Datasets time their reads; the loader reports the time with each batch, so
// that `penstock why` can distinguish slow storage from slow decoding.
#pragma once

#include "runtime/base/clock.hpp"

#include <optional>

namespace penstock {

/// Counts the time from construction to destruction as a read. Reads on several threads, or nested ones, add up.
class timed_read {
 public:
  timed_read() noexcept;
  ~timed_read();
  timed_read(const timed_read&) = delete;
  timed_read& operator=(const timed_read&) = delete;

 private:
  steady_time began_;
};

/// The total time of this process's finished reads.
[[nodiscard]] nanoseconds time_spent_reading() noexcept;
/// When the newest read in progress began. Empty if none is in progress.
[[nodiscard]] std::optional<steady_time> reads_since() noexcept;

}  // namespace penstock
