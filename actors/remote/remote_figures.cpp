// How the session sees a remote worker: its flight page, and the figures of its connection.
#include "actors/remote/remote_connection.hpp"

#include <utility>

namespace penstock::hosts {

void remote_connection::mirror(const flight_seen& seen) {
  {
    const std::lock_guard hold(mutex_);
    figures_.resident_bytes = seen.resident_bytes;
    figures_.times.cpu = nanoseconds(seen.cpu_ns);
    figures_.times.core_wait = nanoseconds(seen.core_wait_ns);
  }
  mirror_.show(*place_, seen, jobs_.get());
}

void remote_connection::stand_in() {
  if (link_) mirror_.stand_in(*place_);
}

// ---- figures --------------------------------------------------------------------------------------------------

connection_figures remote_connection::figures() const {
  const std::lock_guard hold(mutex_);
  connection_figures seen = figures_;
  if (!receives_) return seen;
  const nanoseconds passed = now() - receives_->since;
  seen.times.receiving += passed;
  seen.times.rests = passed > receives_->loading;
  return seen;
}

/// `loading`: how long the worker took to load the arriving batch. figures() assumes that the next one takes as
/// long.
void remote_connection::note_receiving(nanoseconds loading) {
  const std::lock_guard hold(mutex_);
  receives_ = {now(), loading};
}

void remote_connection::note_received() {
  const std::lock_guard hold(mutex_);
  figures_.times.receiving += now() - std::exchange(receives_, std::nullopt)->since;
}

void remote_connection::note_held() {
  const std::uint64_t held = !link_ ? 0 : jobs_ ? jobs_->held() : landing_.waiting();
  const std::lock_guard hold(mutex_);
  figures_.holds = held;
}

}  // namespace penstock::hosts
