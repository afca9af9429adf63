// Shows a process outside the session (`penstock launch`) whether the session's actors work. A beat is an
// answer of the scheduler and, in a group, a step of the member actor as well. Rank 0 relies on the member's
// reports, so launcher and rank 0 see the same signs of life. No other thread and no user code can cause or
// prevent a beat.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

namespace penstock {
class Session;
}

namespace penstock::session {

/// Thread-safe.
class pulse {
 public:
  /// Call begins() when the actors exist, and ends() before they are destroyed.
  void begins();
  void ends();
  /// Call when the scheduler has answered state() or report().
  void scheduler_answered();
  /// Call when the group's member has checked its work, which it does several times per `lost_after` once it
  /// has joined.
  void member_stepped();
  void member_gone();

  /// Increases while the actors work. Empty: there are no actors.
  [[nodiscard]] std::optional<std::uint64_t> beats() const;

 private:
  void settle();

  mutable std::mutex mutex_;
  bool there_ = false;
  bool has_member_ = false;
  bool scheduler_answered_ = false;  // whether the scheduler has answered since the last beat
  bool member_stepped_ = false;
  std::uint64_t beats_ = 0;
};

/// The beats of this session. They advance only while callers keep requesting state().
[[nodiscard]] std::optional<std::uint64_t> beats_of(const Session& session);

}  // namespace penstock::session
