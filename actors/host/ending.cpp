#include "actors/host/ending.hpp"

#include "runtime/base/patient_deadline.hpp"

#include <algorithm>
#include <utility>

namespace penstock::host {
namespace {

constexpr nanoseconds looked_at_every = std::chrono::milliseconds(100);

}  // namespace

bool ending::begin() {
  const std::lock_guard hold(mutex_);
  return !stopped_ && !std::exchange(started_, true);
}

void ending::stop(std::optional<nanoseconds> at_most) {
  const std::lock_guard hold(mutex_);
  stopped_ = true;
  if (!stopped_at_) stopped_at_ = std::chrono::steady_clock::now();
  if (at_most) in_all_ = std::min(in_all_, *at_most);
  limited_ = limited_ || at_most;
  changed_.notify_all();
}

void ending::close() {
  const std::lock_guard hold(mutex_);
  closed_ = true;
}

void ending::asked_by(std::string_view who) {
  const std::lock_guard hold(mutex_);
  if (asked_by_.empty()) asked_by_ = who.empty() ? "the program" : who;
}

std::string ending::who_asked() const {
  const std::lock_guard hold(mutex_);
  return asked_by_;
}

void ending::failed_by(std::string_view why) {
  const std::lock_guard hold(mutex_);
  if (asked_by_.empty() && failed_by_.empty()) failed_by_ = why;
}

std::string ending::why_failed() const {
  const std::lock_guard hold(mutex_);
  return failed_by_;
}

bool ending::stopped() const {
  const std::lock_guard hold(mutex_);
  return stopped_;
}

bool ending::closed() const {
  const std::lock_guard hold(mutex_);
  return closed_;
}

supervision::shutdown_shares ending::shares() const {
  const std::lock_guard hold(mutex_);
  return supervision::shares_of(in_all_);
}

std::optional<nanoseconds> ending::stopping_for(steady_time now) const {
  const std::lock_guard hold(mutex_);
  if (!stopped_at_) return std::nullopt;
  return now - *stopped_at_;
}

std::optional<nanoseconds> ending::killed_in(bool some_work, steady_time now) const {
  const std::lock_guard hold(mutex_);
  const std::optional<steady_time>& since = some_work ? stopped_at_ : owner_told_at_;
  if (!stopped_at_ || !since) return std::nullopt;
  const supervision::shutdown_shares shares = supervision::shares_of(in_all_);
  return std::max((some_work ? shares.items : shares.owner) - (now - *since), nanoseconds(0));
}

void ending::owner_told(bool whole, steady_time now) {
  const std::lock_guard hold(mutex_);
  owner_told_ = whole;
  if (!owner_told_at_) owner_told_at_ = now;
}

std::optional<bool> ending::owner_was_told() const {
  const std::lock_guard hold(mutex_);
  return owner_told_;
}

void ending::pool_gone() {
  const std::lock_guard hold(mutex_);
  pool_gone_ = true;
  changed_.notify_all();
}

void ending::owner_gone() {
  const std::lock_guard hold(mutex_);
  owner_gone_ = true;
  changed_.notify_all();
}

void ending::group_begins(std::uint32_t actors) {
  const std::lock_guard hold(mutex_);
  group_actors_ = actors;
}

void ending::group_actor_gone() {
  const std::lock_guard hold(mutex_);
  if (group_actors_ > 0) --group_actors_;
  changed_.notify_all();
}

void ending::wait_for_group() {
  std::unique_lock hold(mutex_);
  patient_deadline waited(nanoseconds(0), looked_at_every);
  waited.restart(std::chrono::steady_clock::now());
  while (group_actors_ > 0 && !(limited_ && waited.counted() >= in_all_)) {
    changed_.wait_for(hold, looked_at_every);
    static_cast<void>(waited.is_over(std::chrono::steady_clock::now()));
  }
}

void ending::wait_for_pool() {
  wait_for(pool_gone_, &supervision::shutdown_shares::items);
}

bool ending::wait_for_owner() {
  return wait_for(owner_gone_, &supervision::shutdown_shares::owner);
}

bool ending::wait_for(const bool& gone, nanoseconds supervision::shutdown_shares::*part) {
  std::unique_lock hold(mutex_);
  // Time during which this process or the machine was suspended does not count: nothing could end then.
  patient_deadline waited(nanoseconds(0), looked_at_every);
  waited.restart(std::chrono::steady_clock::now());
  const auto left = [&] {
    const supervision::shutdown_shares shares = supervision::shares_of(in_all_);
    return shares.*part + shares.killing - waited.counted();
  };
  while (!gone && left() > nanoseconds(0)) {
    changed_.wait_for(hold, std::min(left(), looked_at_every));
    static_cast<void>(waited.is_over(std::chrono::steady_clock::now()));
  }
  return gone;
}

}  // namespace penstock::host
