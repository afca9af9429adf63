// The shutdown of a session: what was requested, which parts have ended, and how much time each has left
// (rule E4). Records and waits; the session itself notifies the parts. Used by the session only; thread-safe.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/supervision/shutdown.hpp"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::host {

class ending {
 public:
  /// `in_all`: the time for the whole shutdown, [supervisor] shutdown.
  explicit ending(nanoseconds in_all) : in_all_(in_all) {}

  /// Starts the session. False: it has already started, or was stopped before that.
  bool begin();
  /// From now on nothing new may start. The whole shutdown takes at most this long, or less if an earlier call set a
  /// shorter time.
  void stop(std::optional<nanoseconds> at_most);
  void close();
  /// Who asked the session to stop; only the first one counts. Empty: the program.
  void asked_by(std::string_view who);
  [[nodiscard]] std::string who_asked() const;  ///< empty: no one has asked
  /// Records why the program has failed; ignored after asked_by().
  void failed_by(std::string_view why);
  [[nodiscard]] std::string why_failed() const;  ///< empty: it has not failed

  [[nodiscard]] bool stopped() const;
  [[nodiscard]] bool closed() const;
  [[nodiscard]] supervision::shutdown_shares shares() const;
  /// How long ago the first stop() was; empty before that.
  [[nodiscard]] std::optional<nanoseconds> stopping_for(steady_time now) const;
  /// `some_work`: some workers still work; returns the time until they are killed, counted from the first stop(). Otherwise
  /// returns the time until the owner's process is killed, counted from when it was asked to exit. Empty before that.
  [[nodiscard]] std::optional<nanoseconds> killed_in(bool some_work, steady_time now) const;

  /// Call when the owner's process has been asked to exit. `whole`: the stream was complete.
  void owner_told(bool whole, steady_time now);
  [[nodiscard]] std::optional<bool> owner_was_told() const;

  /// Call if the session belongs to a group: this many group actors end with the session.
  void group_begins(std::uint32_t actors);

  // The actors report their end, once each.
  void pool_gone();
  void owner_gone();
  void group_actor_gone();
  /// Each waits until that part has ended or its share of the time has passed; stop() may shorten the time
  /// meanwhile.
  void wait_for_pool();
  /// Returns whether it has ended.
  [[nodiscard]] bool wait_for_owner();
  /// Waits until no rank of the group needs this session. The wait has no limit unless stop() was called with
  /// one: rank 0 stays until the other ranks have finished.
  void wait_for_group();

 private:
  bool wait_for(const bool& gone, nanoseconds supervision::shutdown_shares::*part);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  nanoseconds in_all_;
  bool started_ = false;
  bool stopped_ = false;
  std::optional<steady_time> stopped_at_;
  std::string asked_by_;
  std::string failed_by_;
  bool closed_ = false;
  bool pool_gone_ = false;
  bool owner_gone_ = false;
  std::optional<bool> owner_told_;
  std::optional<steady_time> owner_told_at_;  // when owner_told() was first called
  std::uint32_t group_actors_ = 0;
  bool limited_ = false;  // a stop() has set a limit
};

}  // namespace penstock::host
