#include "runtime/hosts/host_shares.hpp"

#include <algorithm>
#include <utility>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr auto measured_after = 1s;
constexpr double waits_little = 0.05;  // share of a session's time; a shorter wait is noise
// Share of a session's workers that have work; with fewer, the session is paused or waits for something else.
constexpr double works_little = 0.3;
// Need of a session that does not wait, relative to the workers that have work.
constexpr double reserve = 1.25;
constexpr double nearer_by = 0.25;     // workers
constexpr double needs_more_by = 0.5;

double seconds(nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

// ---- events -------------------------------------------------------------------------------------------------

bool host_shares::calls(session_number number, steady_time now) {
  discount_standstill(now);
  sessions_[number].called = now;
  advance(now);
  session& s = sessions_.at(number);
  if (s.dismissed || s.held >= s.offer) return false;
  ++s.held;
  s.was_served = true;
  return true;
}

void host_shares::leaving(session_number number) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end() || found->second.held == 0) return;
  --found->second.held;
  ++found->second.leaving;
}

void host_shares::ended(session_number number, bool was_leaving, steady_time now) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  std::uint32_t& count = was_leaving && found->second.leaving > 0 ? found->second.leaving : found->second.held;
  count -= count > 0 ? 1 : 0;
  advance(now);
}

/// Drops old samples, but keeps one from before the window.
void host_shares::note(std::deque<sample>& into, sample what) const {
  into.push_back(what);
  while (into.size() > 2 && into[1].at <= what.at - settings_.window) into.pop_front();
}

void host_shares::waited(session_number number, nanoseconds total, steady_time now) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  std::deque<sample>& known = found->second.waited;
  if (known.empty() || seconds(total) >= known.back().value) note(known, {now, seconds(total)});
}

void host_shares::worked(session_number number, std::uint32_t busy, steady_time now) {
  const auto found = sessions_.find(number);
  if (found != sessions_.end()) note(found->second.busy, {now, static_cast<double>(busy)});
}

void host_shares::wants_at_most(session_number number, std::uint32_t workers) {
  const auto found = sessions_.find(number);
  if (found != sessions_.end()) found->second.limit = std::max(workers, 1U);
}

void host_shares::dismiss(session_number number) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  found->second.dismissed = true;
  found->second.offer = 0;
}

// ---- needs and shares ---------------------------------------------------------------------------------------

bool host_shares::is_measured(const session& s) const {
  return s.waited.size() > 1 && s.waited.back().at - s.waited.front().at >= measured_after && !s.busy.empty();
}

double host_shares::need_of(const session& s) const {
  const double all = std::min(settings_.workers, s.limit);
  if (!is_measured(s)) return all;
  const sample& first = s.waited.front();
  const sample& last = s.waited.back();
  const double waits = std::clamp((last.value - first.value) / seconds(last.at - first.at), 0.0, 1.0);
  const double has = std::max<double>(s.held, 1);
  double busy = 0;
  for (const sample& one : s.busy) busy += one.value;
  busy /= static_cast<double>(s.busy.size());
  const double wanted = waits < 1 ? std::min(all, has / (1 - waits)) : all;
  if (waits > waits_little && busy > has * works_little) return wanted;
  // Limit by `wanted` and not by `has`: otherwise two equal sessions, one above the limit and one below, would
  // exchange a worker forever.
  return std::min(all, std::clamp(busy * reserve, 1.0, wanted));
}

std::uint32_t host_shares::free_workers() const {
  std::uint32_t taken = 0;
  for (const auto& [number, s] : sessions_) taken += std::max(s.offer, s.held) + s.leaving;
  return settings_.workers - std::min(taken, settings_.workers);
}

void host_shares::discount_standstill(steady_time now) {
  const nanoseconds since = now - looked_.value_or(now);
  looked_ = now;
  if (since <= settings_.late_look) return;
  for (auto& [number, s] : sessions_) s.called += since;
}

void host_shares::forget(steady_time now) {
  std::erase_if(sessions_, [&](const auto& one) {
    const session& s = one.second;
    if (s.held > 0 || s.leaving > 0) return false;
    return now - s.called > (s.dismissed ? settings_.dismissed_for : settings_.call_again) || (s.was_served && !s.dismissed);
  });
  if (sessions_.empty()) looked_.reset();
}

/// Shares the workers in proportion to the needs, but gives each session at least one while there are enough.
std::vector<host_shares::plan> host_shares::shares() {
  std::vector<plan> all;
  for (auto& [number, s] : sessions_) {
    if (!s.dismissed) all.push_back({&s, 0, need_of(s), static_cast<double>(s.offer)});
  }
  const double least = std::min(1.0, static_cast<double>(settings_.workers) / std::max<double>(static_cast<double>(all.size()), 1));
  for (bool again = true; std::exchange(again, false);) {
    double rest = settings_.workers;
    double needs = 0;
    for (const plan& one : all) {
      if (one.share == least) rest -= least;
      else needs += one.need;
    }
    for (plan& one : all) {
      if (one.share == least) continue;
      one.share = rest * one.need / needs;
      if (one.share > least) continue;
      one.share = least;
      again = true;
    }
  }
  return all;
}

// ---- decisions ----------------------------------------------------------------------------------------------

void host_shares::give_free() {
  std::vector<plan> all = shares();
  if (all.empty()) return;
  for (std::uint32_t n = free_workers(); n > 0; --n) {
    plan& neediest = *std::ranges::max_element(all, {}, [](const plan& one) { return one.share - one.expected; });
    ++neediest.of->offer;
    ++neediest.expected;
  }
}

std::uint32_t host_shares::change(steady_time now) {
  const auto lacks = [](const plan& one) { return one.share - one.expected; };
  std::vector<plan> all = shares();
  if (all.size() < 2) {
    unequal_since_.reset();
    return 0;
  }
  std::uint32_t promised = 0;
  for (const auto& [number, s] : sessions_) promised += s.leaving + std::max(s.held, s.offer) - s.offer;
  for (; promised > 0; --promised) ++std::ranges::max_element(all, {}, lacks)->expected;

  std::uint32_t changes = 0;
  bool at_once = false;
  while (true) {
    plan* neediest = nullptr;  // the session that lacks most workers
    for (plan& one : all) {
      const bool needs_more = one.expected < 1 || one.need - one.expected > needs_more_by;
      if (needs_more && (neediest == nullptr || lacks(one) > lacks(*neediest))) neediest = &one;
    }
    plan* richest = nullptr;
    for (plan& one : all) {
      const bool may_give = &one != neediest && one.expected >= 2 && one.of->offer >= one.gives + 2;  // one worker stays
      if (may_give && (richest == nullptr || lacks(one) < lacks(*richest))) richest = &one;
    }
    if (neediest == nullptr || richest == nullptr) break;
    const bool has_none = neediest->expected < 1;
    if (!has_none && lacks(*neediest) - lacks(*richest) <= 1 + nearer_by) break;
    at_once |= has_none || !is_measured(*neediest->of);
    --richest->expected;
    ++richest->gives;
    ++neediest->expected;
    ++changes;
  }
  if (changes == 0) {
    unequal_since_.reset();
    return 0;
  }
  if (!unequal_since_) unequal_since_ = now;
  const bool is_time = now - *unequal_since_ >= settings_.settle && (!changed_ || now - *changed_ >= settings_.rest);
  if (!at_once && !is_time) return 0;
  for (const plan& one : all) one.of->offer -= one.gives;
  unequal_since_.reset();
  changed_ = now;
  return changes;
}

std::uint32_t host_shares::advance(steady_time now) {
  discount_standstill(now);
  forget(now);
  give_free();
  const std::uint32_t changed = change(now);
  give_free();  // a worker that change() took from an offer may already be free
  return changed;
}

// ---- results ------------------------------------------------------------------------------------------------

std::uint32_t host_shares::offer(session_number number) const {
  const auto found = sessions_.find(number);
  return found == sessions_.end() ? 0 : found->second.offer;
}

std::uint32_t host_shares::surplus(session_number number) const {
  const auto found = sessions_.find(number);
  return found == sessions_.end() || found->second.held <= found->second.offer ? 0 : found->second.held - found->second.offer;
}

std::uint32_t host_shares::held(session_number number) const {
  const auto found = sessions_.find(number);
  return found == sessions_.end() ? 0 : found->second.held;
}

double host_shares::need(session_number number) const {
  const auto found = sessions_.find(number);
  return found == sessions_.end() ? 0 : need_of(found->second);
}

bool host_shares::is_dismissed(session_number number) const {
  const auto found = sessions_.find(number);
  return found != sessions_.end() && found->second.dismissed;
}

std::vector<session_number> host_shares::sessions() const {
  std::vector<session_number> all;
  for (const auto& [number, s] : sessions_) all.push_back(number);
  return all;
}

}  // namespace penstock::hosts
