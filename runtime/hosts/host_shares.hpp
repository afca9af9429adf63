// How a loader host shares its workers between the sessions that it has joined or that have connected (rules H14-H15 and H18). Pure: events
// and the time come in; how many workers each session may have comes out. Driven by actors/remote/loader_host.
//
// The need of a session is the number of workers with which its consumer would not wait:
//
//   it waits for the share f of its time with n workers    n / (1 - f), at most all workers of the host
//   it does not wait, or its workers have no work          the workers that have work, and a quarter more
//   it has just joined                                     all workers of the host
//   its operator wants fewer of them to run                at most that number
//
// Workers are shared in proportion to the needs, at least one each. A worker changes sessions only if
// that brings the numbers closer to the shares by more than a quarter of a worker, and if the session
// that gets the worker needs it:
//
//   even -- unequal --> unequal -- for `settle`, and `rest` after the last change, or a session has just come --> workers leave
//    ^                     |                                                                                      |
//    +---- even again -----+------------------------------ have left: free workers are given ---------------------+
#pragma once

#include "runtime/base/clock.hpp"

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <vector>

namespace penstock::hosts {

using session_number = std::uint64_t;

struct share_settings {
  std::uint32_t workers = 1;
  nanoseconds window{3'000'000'000};    ///< the time over which sessions are measured
  nanoseconds settle{2'000'000'000};
  nanoseconds rest{5'000'000'000};
  nanoseconds call_again{5'000'000'000};  ///< a session without workers that has not connected for this long is gone
  nanoseconds dismissed_for{600'000'000'000};  ///< the same for a dismissed session, which may have been suspended
  /// If two calls to advance() are further apart, the time between them does not count as silence (rule H17).
  nanoseconds late_look{1'000'000'000};
};

class host_shares {
 public:
  explicit host_shares(const share_settings& settings) : settings_(settings) {}

  /// A session asks for one more worker. Returns false if it has its
  /// share, or must wait until another session gives up a worker.
  [[nodiscard]] bool calls(session_number session, steady_time now);
  /// One of the session's workers finishes its batches, and then goes to another session.
  void leaving(session_number session);
  /// One of the session's workers has ended.
  void ended(session_number session, bool was_leaving, steady_time now);
  /// How long its consumer has waited so far. Ignores a total below one already reported, because
  /// such a report must be late.
  void waited(session_number session, nanoseconds total, steady_time now);
  /// How many of its workers have work, or are starting.
  void worked(session_number session, std::uint32_t busy, steady_time now);

  /// The session's operator allows at most this many of its workers to run (rule H16).
  void wants_at_most(session_number session, std::uint32_t workers);
  /// All workers of the session must leave, and it gets no others as long as it keeps connecting (rule H18).
  void dismiss(session_number session);
  [[nodiscard]] bool is_dismissed(session_number session) const;

  /// Call several times a second while there are sessions. Returns how many workers it has just
  /// ordered to change sessions.
  std::uint32_t advance(steady_time now);

  /// How many workers it may have. 0: unknown, or none is free.
  [[nodiscard]] std::uint32_t offer(session_number session) const;
  /// How many of its workers must leave.
  [[nodiscard]] std::uint32_t surplus(session_number session) const;
  [[nodiscard]] std::vector<session_number> sessions() const;
  [[nodiscard]] std::uint32_t held(session_number session) const;
  [[nodiscard]] double need(session_number session) const;

 private:
  struct sample {
    steady_time at{};
    double value = 0;
  };
  struct session {
    std::uint32_t offer = 0;
    std::uint32_t held = 0;     ///< its workers, except leaving ones
    std::uint32_t leaving = 0;
    std::uint32_t limit = std::numeric_limits<std::uint32_t>::max();
    bool was_served = false;
    bool dismissed = false;
    steady_time called{};
    std::deque<sample> waited;  ///< samples of the seconds waited so far
    std::deque<sample> busy;
  };
  struct plan {
    session* of = nullptr;
    double share = 0;
    double need = 0;
    double expected = 0;  ///< the number of its workers once the leaving ones have left
    std::uint32_t gives = 0;
  };

  void discount_standstill(steady_time now);
  void note(std::deque<sample>& into, sample what) const;
  [[nodiscard]] bool is_measured(const session& s) const;
  [[nodiscard]] double need_of(const session& s) const;
  [[nodiscard]] std::uint32_t free_workers() const;
  void forget(steady_time now);
  [[nodiscard]] std::vector<plan> shares();
  void give_free();
  std::uint32_t change(steady_time now);

  const share_settings settings_;
  std::map<session_number, session> sessions_;
  std::optional<steady_time> unequal_since_;
  std::optional<steady_time> changed_;
  std::optional<steady_time> looked_;  // empty: there was no session
};

}  // namespace penstock::hosts
