// What the GPU owner's sink does, according to the owner's flight page: how long it has waited for batches, over all
// owners of a session, and since when it has been working on one. Used by the owner's keeper.
#pragma once

#include "actors/supervisor/owner_keeper.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace penstock::supervisor {

/// Adds up the waits, including one in progress. Not thread-safe.
class sink_watch {
 public:
  /// Waits of at most `short_wait` are not reported as in progress: they end before the next reading.
  explicit sink_watch(nanoseconds short_wait) : short_wait_(short_wait) {}

  void begin_owner() {
    before_ += std::exchange(waited_, nanoseconds(0));
    word_ = 0;
  }

  /// Reports the waits in this owner's flight page.
  void report_to(keeper_listener& news, const arena::flight_reading& flight, steady_time now, bool lives = true) {
    waited_ = std::max(waited_, flight.waited_until(now));
    const bool waits = lives && flight.waits_since && now - *flight.waits_since >= short_wait_;
    news.owner_waited(before_ + waited_, waits ? std::optional(now) : std::nullopt);
  }

  /// Returns when the page last changed.
  [[nodiscard]] steady_time unchanged_since(const arena::flight_reading& flight, steady_time now) {
    if (std::exchange(word_, flight.word) != flight.word) since_ = now;
    return since_;
  }

 private:
  nanoseconds short_wait_;
  nanoseconds before_{0};  // waits of earlier owners' sinks
  nanoseconds waited_{0};
  std::uint64_t word_ = 0;
  steady_time since_{};
};

}  // namespace penstock::supervisor
