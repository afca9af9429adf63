// How long the consumer of a run has waited for batches, not counting pauses of the run and suspensions of its process. Pure;
// used by the board.
#pragma once

#include "runtime/base/clock.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace penstock::host {

class consumer_waits {
 public:
  /// A running process calls look() more often than this, unless it gets no core.
  static constexpr nanoseconds longest_turn = std::chrono::seconds(2);

  void begin(steady_time now) { since_ = now; }
  void end(steady_time now) {
    ended_ = total(now);
    since_.reset();
  }
  /// For an owner in another process. `in_all`: the total of its waits so far. `waits_at`: when that total was read, if the
  /// owner was waiting then.
  void told(nanoseconds in_all, std::optional<steady_time> waits_at) {
    ended_ = in_all;
    since_ = waits_at;
  }
  void pause(bool paused, steady_time now) {
    if (paused == at_pause_.has_value()) return;
    if (paused) {
      at_pause_ = total(now);
    } else {
      left_out_ += grown(*std::exchange(at_pause_, std::nullopt), now);
      at_look_ = total(now);
    }
  }
  /// Call several times a second. `suspended`: how long the process was suspended since the last call.
  void look(steady_time now, nanoseconds suspended) {
    if (!at_pause_) left_out_ += std::min(suspended, grown(at_look_, now));
    at_look_ = total(now);
    looked_ = now;
  }

  [[nodiscard]] std::optional<steady_time> since() const noexcept { return since_; }
  /// The total wait so far, including a wait in progress. Never decreases.
  nanoseconds until(steady_time now) {
    const steady_time known = looked_ ? std::min(now, *looked_ + longest_turn) : now;
    latest_ = std::max(latest_, at_pause_.value_or(total(known)) - left_out_);
    return latest_;
  }

 private:
  [[nodiscard]] nanoseconds total(steady_time now) const {
    return ended_ + (since_ ? std::max<nanoseconds>(now - *since_, nanoseconds(0)) : nanoseconds(0));
  }
  /// Never negative, although the total may fall: the end of an owner's wait is reported late.
  [[nodiscard]] nanoseconds grown(nanoseconds from, steady_time now) const { return std::max(total(now) - from, nanoseconds(0)); }

  nanoseconds ended_{0};                    // total of finished waits; like at_pause_ and at_look_, includes pauses and suspensions
  std::optional<steady_time> since_;        // when the wait in progress began
  std::optional<nanoseconds> at_pause_;     // the total when the pause in progress began
  nanoseconds at_look_{0};                  // the total at the last look(), or when the last pause ended
  nanoseconds left_out_{0};
  nanoseconds latest_{0};
  std::optional<steady_time> looked_;
};

}  // namespace penstock::host
