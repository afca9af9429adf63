// Whether the actors of a session work, for whoever watches its process from outside: `penstock launch`. A beat is an
// answer of the scheduler and, in a group, a step of the member actor, whose reports rank 0 goes by: launcher and rank 0
// see the same signs. No other thread and no user code can make one, and none of them can keep one back.
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
  /// The actors exist from now on; ends(): they are about to end.
  void begins();
  void ends();
  /// The scheduler has answered state() or report().
  void scheduler_answered();
  /// The group's member has looked at what there is to do, as it does several times in `lost_after` from its joining on.
  void member_stepped();
  void member_gone();

  /// Increases while the actors work. Empty: there are none.
  [[nodiscard]] std::optional<std::uint64_t> beats() const;

 private:
  void settle();

  mutable std::mutex mutex_;
  bool there_ = false;
  bool has_member_ = false;
  bool scheduler_answered_ = false;  // since the last beat
  bool member_stepped_ = false;
  std::uint64_t beats_ = 0;
};

/// Of this session. It beats while somebody calls state() again and again.
[[nodiscard]] std::optional<std::uint64_t> beats_of(const Session& session);

}  // namespace penstock::session
