// When a loader host connects to one of the sessions that it joins, how many times, and when it gives up on that session (rules H9 and H14).
// Pure: events and the time come in. Driven by actors/remote/loader_host, which has one for each `--join`.
//
//   one connection at a time, later after each failure -- it gets a place --> as many as host_shares offers
//    ^                                                                          |
//    +------------ the last one is lost: for at most `wait` of the session -----+-- the session is over, or sends the host away --> (over)
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/patient_deadline.hpp"

#include <cstdint>
#include <optional>

namespace penstock::hosts {

struct attempt_settings {
  nanoseconds pause{300'000'000};
  nanoseconds pause_max{2'000'000'000};  ///< `pause` doubles up to this while attempts fail
  nanoseconds call_again{1'000'000'000};  ///< time between attempts while this host has no free worker
  nanoseconds look_every{500'000'000};    ///< a host that is running calls wanted() at least this often
};

/// The current connections to a session.
struct connections_now {
  std::uint32_t all = 0;
  std::uint32_t connecting = 0;  ///< connections to which the session has not answered yet
  std::uint32_t held = 0;        ///< workers that host_shares has given the session
  std::uint32_t offer = 0;       ///< how many workers the session may have
};

class join_attempts {
 public:
  explicit join_attempts(const attempt_settings& settings = {}) : settings_(settings) {}

  /// A connection has a place now. `wait`: how long to try after the session is lost.
  void joined(nanoseconds wait);
  /// A connection that had a place has ended, and was not lost.
  void left();
  /// A connection that had a place is lost.
  void lost(steady_time now);
  /// A connection got no place. Returns false if the host must give up on the session.
  [[nodiscard]] bool failed(steady_time now);
  /// A session answered, but this host has no worker for it yet.
  void busy(steady_time now) { again_at_ = now + settings_.call_again; }
  /// Stops all further attempts.
  void finish() { over_ = true; }

  /// How many connections to make now. Time during which this host did not run does not count
  /// towards `wait` (rule H17).
  [[nodiscard]] std::uint32_t wanted(const connections_now& there, steady_time now);
  [[nodiscard]] std::uint32_t placed() const noexcept { return placed_; }
  [[nodiscard]] bool over() const noexcept { return over_; }
  /// How long to try after the session is lost.
  [[nodiscard]] nanoseconds wait() const noexcept { return wait_; }

 private:
  const attempt_settings settings_;
  std::uint32_t placed_ = 0;
  nanoseconds pause_ = settings_.pause;
  steady_time again_at_{};
  nanoseconds wait_{0};
  std::optional<patient_deadline> lost_;  // when to give up: `wait` after the last connection was lost
  bool over_ = false;
};

}  // namespace penstock::hosts
