// The shutdown of a session: what was requested, which parts are gone, and how long each may still take
// (rule E4). Records and waits; the session itself notifies the parts. Used by the session only;
// thread-safe.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/supervision/shutdown.hpp"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

namespace penstock::session {

class ending {
 public:
  /// [supervisor] shutdown.
  explicit ending(nanoseconds in_all) : in_all_(in_all) {}

  /// The session starts. False: it has already started, or was stopped before that.
  bool begin();
  /// Nothing new may start. The whole shutdown takes at most this long, or less if less was requested before.
  void stop(std::optional<nanoseconds> at_most);
  void close();

  [[nodiscard]] bool stopped() const;
  [[nodiscard]] bool closed() const;
  [[nodiscard]] supervision::shutdown_shares shares() const;

  /// The owner's process was asked to exit; `whole`: the stream was complete.
  void owner_told(bool whole);
  [[nodiscard]] std::optional<bool> owner_was_told() const;

  /// The session belongs to a group: so many actors of it end with the session.
  void group_begins(std::uint32_t actors);

  // Called by the actors, once each.
  void pool_gone();
  void owner_gone();
  void group_actor_gone();
  /// Wait until that part is gone or its share of the time has passed; stop() may shorten it in the meantime.
  void wait_for_pool();
  void wait_for_owner();
  /// Waits until nobody in the group needs this session any more. Only a stop() with a time limits it: rank 0 stays
  /// until the others have finished.
  void wait_for_group();

 private:
  void wait_for(const bool& gone, nanoseconds supervision::shutdown_shares::*part);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  nanoseconds in_all_;
  bool started_ = false;
  bool stopped_ = false;
  bool closed_ = false;
  bool pool_gone_ = false;
  bool owner_gone_ = false;
  std::optional<bool> owner_told_;
  std::uint32_t group_actors_ = 0;
  bool limited_ = false;  // a stop() has set a time
};

}  // namespace penstock::session
