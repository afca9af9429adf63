#include "runtime/hosts/join_attempts.hpp"

#include <algorithm>
#include <utility>

namespace penstock::hosts {

void join_attempts::joined(nanoseconds wait) {
  ++placed_;
  wait_ = wait;
  pause_ = settings_.pause;
  lost_.reset();
}

void join_attempts::left() {
  placed_ -= placed_ > 0 ? 1 : 0;
}

void join_attempts::lost(steady_time now) {
  left();
  if (placed_ == 0) lost_.emplace(wait_, settings_.look_every).restart(now);
  again_at_ = now + settings_.pause;
}

bool join_attempts::failed(steady_time now) {
  again_at_ = now + std::exchange(pause_, std::min(2 * pause_, settings_.pause_max));
  over_ |= lost_ && lost_->is_over(now);
  return !over_;
}

std::uint32_t join_attempts::wanted(const connections_now& there, steady_time now) {
  if (over_) return 0;
  // This call only records that the host ran. It does not give up: the session may be back, which only an
  // attempt to connect can tell.
  if (lost_) static_cast<void>(lost_->is_over(now));
  const bool is_time = now >= again_at_;
  // One connection is enough to find out whether a session answers, and to list the dataset's files.
  if (placed_ == 0) return there.all == 0 && (is_time || there.offer > 0) ? 1 : 0;
  const std::uint32_t has = there.held + there.connecting;
  return is_time && there.offer > has ? there.offer - has : 0;
}

}  // namespace penstock::hosts
