#include "actors/session/pulse.hpp"

namespace penstock::session {

void pulse::begins() {
  const std::lock_guard hold(mutex_);
  there_ = true;
}

void pulse::ends() {
  const std::lock_guard hold(mutex_);
  there_ = false;
}

void pulse::scheduler_answered() {
  const std::lock_guard hold(mutex_);
  scheduler_answered_ = true;
  settle();
}

void pulse::member_stepped() {
  const std::lock_guard hold(mutex_);
  has_member_ = true;
  member_stepped_ = true;
  settle();
}

void pulse::member_gone() {
  const std::lock_guard hold(mutex_);
  has_member_ = false;
  settle();
}

void pulse::settle() {
  if (!scheduler_answered_ || (has_member_ && !member_stepped_)) return;
  ++beats_;
  scheduler_answered_ = member_stepped_ = false;
}

std::optional<std::uint64_t> pulse::beats() const {
  const std::lock_guard hold(mutex_);
  if (!there_) return std::nullopt;
  return beats_;
}

}  // namespace penstock::session
