#include "runtime/supervision/hang_detector.hpp"

#include <algorithm>

namespace penstock::supervision {
namespace {

constexpr std::size_t pool_size_for_joint_misses = 4;

nanoseconds timeout_of(const hang_settings& settings, hang kind) {
  switch (kind) {
    case hang::start: return settings.start_deadline;
    case hang::heartbeat: return settings.heartbeat_timeout;
    case hang::item: break;
  }
  return settings.item_timeout;
}

}  // namespace

nanoseconds hang_settings::tick() const noexcept {
  const auto shortest = std::min({start_deadline, heartbeat_timeout, item_timeout});
  return std::clamp<nanoseconds>(shortest / 16, std::chrono::milliseconds(10),
                                 std::chrono::milliseconds(500));
}

void hang_detector::watch(std::uint32_t worker, steady_time now) {
  watched_[worker] = {now, now, now, 0, 0};
}

void hang_detector::forget(std::uint32_t worker) {
  watched_.erase(worker);
}

std::vector<hang_verdict> hang_detector::look(steady_time now, const std::vector<child_sign>& signs) {
  const nanoseconds shortest =
      std::min({settings_.start_deadline, settings_.heartbeat_timeout, settings_.item_timeout});
  const bool late = last_look_ && now - *last_look_ > settings_.tick() + shortest / 2;
  const nanoseconds slept = late ? now - *last_look_ : nanoseconds(0);
  last_look_ = now;

  std::vector<hang_verdict> verdicts;
  std::vector<hang_verdict> ordered;  // of items with their own limit
  for (const child_sign& sign : signs) {
    const auto it = watched_.find(sign.worker);
    if (it == watched_.end()) continue;
    clocks& c = it->second;
    if (slept.count() > 0) {  // this poll is late: the time in between proves nothing
      c.started += slept;
      c.last_heartbeat += slept;
      c.last_work += slept;
    }
    if (sign.traced) c.started = now;  // its deadline restarts when the debugger detaches
    if (sign.heartbeats != c.heartbeats || sign.traced) c.last_heartbeat = now;
    if (sign.work_mark != c.work_mark || !sign.busy || sign.traced) c.last_work = now;
    c.heartbeats = sign.heartbeats;
    c.work_mark = sign.work_mark;
    const auto verdict = judge(c, sign, now);
    if (!verdict) continue;
    (verdict->kind == hang::item && sign.limit ? ordered : verdicts).push_back(*verdict);
  }

  // If over half the pool is late at once, assume that the machine is slow, but only for a limited time.
  const bool together = signs.size() >= pool_size_for_joint_misses && verdicts.size() * 2 > signs.size();
  if (!together) {
    held_since_.reset();
    verdicts.insert(verdicts.end(), ordered.begin(), ordered.end());
    return verdicts;
  }
  if (!held_since_) held_since_ = now;
  nanoseconds missed{0};
  for (const hang_verdict& v : verdicts) missed = std::max(missed, timeout_of(settings_, v.kind));
  if (now - *held_since_ < missed) return ordered;
  verdicts.insert(verdicts.end(), ordered.begin(), ordered.end());
  return verdicts;
}

std::optional<hang_verdict> hang_detector::judge(const clocks& c, const child_sign& sign,
                                                 steady_time now) const {
  if (!sign.ready) {
    if (now - c.started < settings_.start_deadline) return std::nullopt;
    return hang_verdict{sign.worker, hang::start, now - c.started};
  }
  if (now - c.last_heartbeat >= settings_.heartbeat_timeout) {
    return hang_verdict{sign.worker, hang::heartbeat, now - c.last_heartbeat};
  }
  if (sign.busy && now - c.last_work >= sign.limit.value_or(settings_.item_timeout)) {
    return hang_verdict{sign.worker, hang::item, now - c.last_work};
  }
  return std::nullopt;
}

}  // namespace penstock::supervision
