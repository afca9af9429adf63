// How long the GPU owner's sink has waited for batches, over all owners of a session. Used by the owner's keeper.
#pragma once

#include "actors/supervisor/owner_keeper.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace penstock::supervisor {

/// Includes a wait in progress. Not thread-safe.
class sink_wait {
 public:
  /// Waits of at most `short_wait` are not reported as in progress: they end before the next reading.
  explicit sink_wait(nanoseconds short_wait) : short_wait_(short_wait) {}

  void begin_owner() { before_ += std::exchange(waited_, nanoseconds(0)); }

  /// Reports the waits in this owner's flight page.
  void report_to(keeper_news& news, const arena::flight_reading& flight, steady_time now, bool lives = true) {
    waited_ = std::max(waited_, flight.waited_until(now));
    const bool waits = lives && flight.waits_since && now - *flight.waits_since >= short_wait_;
    news.owner_waited(before_ + waited_, waits ? std::optional(now) : std::nullopt);
  }

 private:
  nanoseconds short_wait_;
  nanoseconds before_{0};  // waits of earlier owners' sinks
  nanoseconds waited_{0};
};

}  // namespace penstock::supervisor
