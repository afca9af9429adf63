#include "runtime/hosts/join_attempts.hpp"

#include <algorithm>
#include <utility>

namespace penstock::hosts {

void join_attempts::joined(nanoseconds wait) {
  ++placed_;
  wait_ = wait;
  pause_ = settings_.pause;
  lost_since_.reset();
}

void join_attempts::left() {
  placed_ -= placed_ > 0 ? 1 : 0;
}

void join_attempts::lost(steady_time now) {
  left();
  if (placed_ == 0) lost_since_ = now;
  again_at_ = now + settings_.pause;
}

bool join_attempts::failed(steady_time now) {
  again_at_ = now + std::exchange(pause_, std::min(2 * pause_, settings_.pause_max));
  over_ |= lost_since_ && now - *lost_since_ > wait_;
  return !over_;
}

std::uint32_t join_attempts::wanted(const connections_now& there, steady_time now) const {
  if (over_) return 0;
  const bool is_time = now >= again_at_;
  // Only one finds out whether a session is there, and lists its dataset.
  if (placed_ == 0) return there.all == 0 && (is_time || there.offer > 0) ? 1 : 0;
  const std::uint32_t has = there.held + there.connecting;
  return is_time && there.offer > has ? there.offer - has : 0;
}

}  // namespace penstock::hosts
