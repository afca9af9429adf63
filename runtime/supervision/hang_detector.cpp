#include "runtime/supervision/hang_detector.hpp"

#include "runtime/base/death_words.hpp"
#include "runtime/base/units.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

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

/// How much of the time since the last poll does not count towards an item's own limit. Such a limit may be
/// much shorter than the timeouts, so a poll may be late only in relation to this limit. A late poll counts
/// as a quarter of the limit, so that limits take effect even if all polls are late.
nanoseconds not_counted(nanoseconds since_last_look, nanoseconds limit) {
  const bool late = since_last_look > std::max<nanoseconds>(limit / 2, std::chrono::milliseconds(10));
  return late ? since_last_look - limit / 4 : nanoseconds(0);
}

}  // namespace

nanoseconds hang_settings::tick() const noexcept {
  const auto shortest = std::min({start_deadline, heartbeat_timeout, item_timeout});
  return std::clamp<nanoseconds>(shortest / 16, std::chrono::milliseconds(10),
                                 std::chrono::milliseconds(500));
}

std::string place_of_wait(const std::string& wait_channel) {
  return wait_channel.empty() ? "" : fmt::format(" ({})", wait_channel == suspended_channel ? "suspended" : wait_channel);
}

std::string hang_finding::reason(const std::string& work, const std::string& wait_channel) const {
  const std::string time = duration_for_people(since);
  const std::string where = place_of_wait(wait_channel);
  switch (kind) {
    case hang::start: return fmt::format("it was not ready within {} of its start{}", time, where);
    case hang::heartbeat: return fmt::format("no heartbeat for {}{}", time, where);
    case hang::item: break;
  }
  return fmt::format("{} for {}{}", work, time, where);
}

void hang_detector::watch(std::uint32_t worker, steady_time now) {
  watched_[worker] = {now, now, now, 0, 0, std::nullopt};
  if (!last_look_) last_look_ = now;
}

void hang_detector::forget(std::uint32_t worker) {
  watched_.erase(worker);
}

std::vector<hang_finding> hang_detector::look(steady_time now, const std::vector<child_sign>& signs) {
  const nanoseconds shortest =
      std::min({settings_.start_deadline, settings_.heartbeat_timeout, settings_.item_timeout});
  const nanoseconds passed = now - last_look_.value_or(now);
  // If the poll was late, silence during this time proves nothing.
  const nanoseconds slept = passed > settings_.tick() + shortest / 2 ? passed : nanoseconds(0);
  last_look_ = now;
  // Includes children that are starting, which have sent no sign of life yet.
  for (auto& [worker, c] : watched_) {
    c.started += slept;
    c.last_heartbeat += slept;
    c.last_work += slept;
  }

  std::vector<hang_finding> findings;
  // For items with their own limit, and for children that have already had an extra half timeout.
  std::vector<hang_finding> certain;
  std::size_t late_soon = 0;          // children that are late or nearly so
  for (const child_sign& sign : signs) {
    const auto it = watched_.find(sign.worker);
    if (it == watched_.end()) continue;
    clocks& c = it->second;
    if (sign.limit && slept == nanoseconds(0)) c.last_work += not_counted(passed, *sign.limit);
    const auto restart = [&](hang kind, steady_time& clock) {
      clock = now;
      if (c.had_half == kind) c.had_half.reset();
    };
    // While a debugger is attached, the deadline starts again at each poll.
    if (sign.ready || sign.traced) restart(hang::start, c.started);
    // A loader host sends heartbeats separately, so the first one may arrive a moment
    // after its worker is ready.
    const bool is_new = sign.ready && !std::exchange(c.was_ready, true);
    if (sign.heartbeats != c.heartbeats || is_new || sign.traced) restart(hang::heartbeat, c.last_heartbeat);
    if (sign.work_mark != c.work_mark || !sign.busy || is_new || sign.traced) restart(hang::item, c.last_work);
    c.heartbeats = sign.heartbeats;
    c.work_mark = sign.work_mark;
    const auto is_certain = [&](const hang_finding& v) {
      return c.had_half == v.kind || (v.kind == hang::item && sign.limit);
    };
    if (const auto soon = check(c, sign, now, 3); soon && !is_certain(*soon)) ++late_soon;
    if (const auto finding = check(c, sign, now, 4))
      (is_certain(*finding) ? certain : findings).push_back(*finding);
  }

  // If over half the pool is late at once, assume that the machine is slow, but only for a limited time.
  const bool together =
      signs.size() >= pool_size_for_joint_misses && late_soon * 2 > signs.size() && !findings.empty();
  if (!together) {
    // The pool as a whole has recovered. Children that are still late get another half timeout.
    if (std::exchange(held_since_, std::nullopt)) {
      for (const hang_finding& v : std::exchange(findings, {})) give_half(watched_.at(v.worker), v.kind, now);
    }
    findings.insert(findings.end(), certain.begin(), certain.end());
    return findings;
  }
  if (!held_since_) held_since_ = now;
  nanoseconds missed{0};
  for (const hang_finding& v : findings) missed = std::max(missed, timeout_of(settings_, v.kind));
  if (now - *held_since_ < missed) return certain;
  findings.insert(findings.end(), certain.begin(), certain.end());
  return findings;
}

void hang_detector::give_half(clocks& c, hang kind, steady_time now) const {
  c.had_half = kind;
  const steady_time since = now - timeout_of(settings_, kind) / 2;
  if (kind == hang::start) c.started = since;
  if (kind == hang::heartbeat) c.last_heartbeat = since;
  if (kind == hang::item) c.last_work = since;
}

std::optional<hang_finding> hang_detector::check(const clocks& c, const child_sign& sign, steady_time now,
                                                 int quarters) const {
  const auto part = [quarters](nanoseconds timeout) { return timeout * quarters / 4; };
  if (!sign.ready) {
    if (now - c.started < part(settings_.start_deadline)) return std::nullopt;
    return hang_finding{sign.worker, hang::start, now - c.started};
  }
  if (now - c.last_heartbeat >= part(settings_.heartbeat_timeout)) {
    return hang_finding{sign.worker, hang::heartbeat, now - c.last_heartbeat};
  }
  if (sign.busy && now - c.last_work >= part(sign.limit.value_or(settings_.item_timeout))) {
    return hang_finding{sign.worker, hang::item, now - c.last_work};
  }
  return std::nullopt;
}

}  // namespace penstock::supervision
