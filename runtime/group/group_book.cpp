#include "runtime/group/group_book.hpp"

#include "runtime/base/units.hpp"

#include <fmt/core.h>

namespace penstock::group {
namespace {

/// A generous bound: the listener admits fewer connections at once.
constexpr std::size_t unknown_peers_max = 256;

std::string name_of(const member_report& r) {
  return group::name_of(r.card);
}

std::string both(std::string_view what, const member_report& a, std::string_view of_a, const member_report& b,
                 std::string_view of_b) {
  return fmt::format("{} is {} at {}, but {} at {}", what, of_a, name_of(a), of_b, name_of(b));
}

/// A difference that keeps two ranks from being in one group; empty if there is none.
std::string difference(const member_report& a, const member_report& b) {
  const rank_card& x = a.card;
  const rank_card& y = b.card;
  if (x.protocol != y.protocol)
    return both("the version of the group's protocol", a, std::to_string(x.protocol), b,
                std::to_string(y.protocol));
  if (x.world_size != y.world_size)
    return both("the world size", a, std::to_string(x.world_size), b, std::to_string(y.world_size));
  const std::size_t settings = std::min(x.settings.size(), y.settings.size());
  for (std::size_t i = 0; i < settings; ++i) {
    const auto& [key, value] = x.settings[i];
    if (key != y.settings[i].first) return both("a setting", a, key, b, y.settings[i].first);
    if (value != y.settings[i].second) return both(key, a, value, b, y.settings[i].second);
  }
  if (x.settings.size() != y.settings.size()) {
    return both("the number of settings", a, std::to_string(x.settings.size()), b,
                std::to_string(y.settings.size()));
  }
  if (!x.device.empty() && x.device == y.device && !(x.shares_device && y.shares_device))
    return fmt::format("{} and {} have the same GPU, {}", name_of(a), name_of(b), x.device);
  return {};
}

}  // namespace

group_book::group_book(group_settings settings, steady_time now)
    : settings_(settings), clock_(now, settings.look_every()), since_(now) {
  view_.incarnations.resize(settings_.world_size);
  places_.resize(settings_.world_size);
  for (place& s : places_) s.missing_since = now;
}

void group_book::heard(const member_report& report, steady_time real_now) {
  const steady_time now = clock_.look(real_now);
  const std::uint32_t rank = report.card.rank;
  if (rank >= settings_.world_size) {
    const std::string why =
        fmt::format("{} does not exist in rank 0's group of {} ranks", name_of(report), settings_.world_size);
    if (!established_ && !takes_over()) fail(report, why);
    return refuse(report, why);
  }
  learn(report.view);
  place& s = places_[rank];
  if (s.latest && s.latest->card.process == report.card.process) {
    update(s, report, now);
  } else {
    claim(s, report, now);
  }
}

std::string group_book::started_twice(const member_report& one, const member_report& other) {
  return fmt::format("rank {} was started twice: pid {} on {} and pid {} on {}", one.card.rank, one.card.pid,
                     one.card.host, other.card.pid, other.card.host);
}

/// The agreements of an earlier coordinator remain valid.
void group_book::learn(const group_view& known) {
  if (known.outcome != group_outcome::none) end(known.outcome, known.cause);
  if (known.generation == 0 || known.coordinator == settings_.process) return;
  generation_known_ = std::max(generation_known_, known.generation);
  if (established_) view_.generation = std::max(view_.generation, known.generation + 1);
  for (std::size_t r = 0; r < std::min(known.incarnations.size(), view_.incarnations.size()); ++r)
    view_.incarnations[r] = std::max(view_.incarnations[r], known.incarnations[r]);
  if (!view_.facts) view_.facts = known.facts;
  if (known.limit) view_.limit = std::max(view_.limit.value_or(0), *known.limit);
  learn_communicator(known.communicator);
  view_.agreed = std::max(view_.agreed, known.agreed);
  if (known.phase == group_phase::stopping) stop_wanted_ = true;
}

/// A higher number than this coordinator has given comes from another coordinator. Orders name the highest
/// number known, so this coordinator's own communicators become unusable.
void group_book::learn_communicator(std::uint64_t number) {
  if (number <= view_.communicator) return;
  view_.communicator = number;
  communicator_.break_off();
}

void group_book::update(place& s, const member_report& report, steady_time now) {
  if (s.ended) return refuse(report, s.why_lost);
  if (report.number <= s.latest->number) return;  // the report is late or repeated
  // Ranks that arrived while this rank was away have not been compared with it.
  if (!s.present && !established_ && !fits(report, now)) return;
  s.latest = report;
  s.heard = now;
  s.stood_still = clock_.stood_still();
  s.link_closed = false;
  if (!s.present) {
    s.present = true;
    s.why_lost.clear();
    note(group_event::kind::back, report.card.rank, fmt::format("{} is back", name_of(report)));
  }
  // Both are alive if both have reported twice, some time apart,
  // since the second one arrived. One late report proves nothing.
  if (s.other && !s.other->placed_heard) s.other->placed_heard = now;
  if (s.other && !established_ && !takes_over() && s.other->heard - s.other->since >= 2 * settings_.beat() &&
      now - *s.other->placed_heard >= 2 * settings_.beat()) {
    return fail(s.other->latest, started_twice(report, s.other->latest));
  }
  take_word(s);
}

/// A process claims a rank that another one has or had, or that has never been taken.
void group_book::claim(place& s, const member_report& report, steady_time now) {
  if (over()) return claim_after_end(s, report, now);
  if (report.incarnation != 0 && report.incarnation < view_.incarnations[report.card.rank])
    return refuse(report, fmt::format("{} was replaced", name_of(report)));
  if (!s.latest) {
    if (fits(report, now)) take(s, report, now);
    return;
  }
  const member_report holder = *s.latest;
  const std::string replaced =
      fmt::format("{} was replaced by pid {} on {}", name_of(report), holder.card.pid, holder.card.host);
  if (report.card.starts < holder.card.starts) return refuse(report, replaced);
  const bool later = report.card.starts > holder.card.starts;
  const bool both_known = report.incarnation != 0 && s.incarnation != 0;
  if (!later && both_known && report.incarnation < s.incarnation) return refuse(report, replaced);
  const bool better_known = report.incarnation > s.incarnation && (both_known || !established_);
  const bool waits = s.present && !later && !better_known;
  if (!waits && !fits(report, now)) return;
  if (s.present && !waits) {
    lose(s, later ? "was started again" : "is not the process that the group knows", now);
    if (over()) return refuse(report, "the group is over");
    if (!later && established_) {  // the process may still be running, and hand out batches for a while
      s.ended = true;
      s.vacant_from = now + settings_.lost_after;
    }
  }
  if (!waits && (later || now >= s.vacant_from)) return take(s, report, now);
  if (!s.other || s.other->latest.card.process != report.card.process) {
    s.other = competitor{report, now, now, {}};
  } else if (report.number > s.other->latest.number) {
    s.other->latest = report;
    s.other->heard = now;
  }
  refuse(report, {});
}

/// The group has finished, but a rank's process ended before it had reported its last batches. Its
/// replacement gets the place and delivers the rest. The earlier process is usually gone. If it is still
/// alive, it has delivered everything.
void group_book::claim_after_end(place& s, const member_report& report, steady_time now) {
  s.knows_end = s.knows_end || report.view.outcome != group_outcome::none;
  if (s.other && s.other->latest.card.process == report.card.process) s.other.reset();
  const bool was_replaced =
      (report.incarnation != 0 && report.incarnation < view_.incarnations[report.card.rank]) ||
      (s.latest && report.card.starts < s.latest->card.starts);
  const bool is_gone = !s.latest || s.ended || report.card.starts > s.latest->card.starts;
  const bool may_be_gone = is_gone || s.latest->stream_over;
  if (may_be_gone && !was_replaced && settings_.waits_for_lost && view_.outcome == group_outcome::finished &&
      fits(report, now)) {
    take(s, report, now);
    s.earlier_may_live = !is_gone;
    return;
  }
  refuse(report, "the group is over");
}

void group_book::take(place& s, const member_report& report, steady_time now) {
  const bool known = report.incarnation != 0 && report.incarnation >= view_.incarnations[report.card.rank];
  const bool again = s.latest.has_value() || s.incarnation != 0;
  std::erase_if(unknown_peers_, [&](const unknown_peer& who) { return who.process == report.card.process; });
  s = {};
  s.latest = report;
  s.present = true;
  s.heard = now;
  s.stood_still = clock_.stood_still();
  std::uint32_t& incarnation = view_.incarnations[report.card.rank];
  if (known) {
    incarnation = s.incarnation = report.incarnation;
  } else if (established_) {
    s.incarnation = ++incarnation;
  }
  if (established_) communicator_.break_off();
  note(again ? group_event::kind::replaced : group_event::kind::joined, report.card.rank,
       fmt::format("{} {}", name_of(report), again ? "takes its place" : "has arrived"));
  take_word(s);
}

/// Applies the contents of a report. That the rank is present is recorded elsewhere.
void group_book::take_word(place& s) {
  const member_report& said = *s.latest;
  learn_communicator(said.communicator.number);
  stop_wanted_ = stop_wanted_ || said.stop_wanted;
  if (said.failed) return end(group_outcome::failed, said.failed);
  if (!said.left || over()) return;
  s.ended = true;
  lose(s, fmt::format("left at step {}", said.steps), s.heard);
}

bool group_book::fits(const member_report& report, steady_time now) {
  for (place& s : places_) {
    const bool counts = s.latest && (s.present || (established_ && s.incarnation != 0));
    if (!counts || s.latest->card.rank == report.card.rank) continue;
    const std::string why = difference(*s.latest, report);
    if (why.empty()) continue;
    if (!established_ && !takes_over()) {
      fail(report, why);
    } else if (s.incarnation == 0 && report.incarnation != 0) {
      // The survivors' reports decide the group's state: a rank that differs from them loses its place.
      s.ended = true;
      s.why_lost = why;
      s.present = false;
      s.missing_since = now;
      continue;
    }
    refuse(report, why);
    return false;
  }
  return true;
}

void group_book::refuse(const member_report& report, std::string why) {
  if (unknown_peers_.size() >= unknown_peers_max) return;
  unknown_peers_.push_back({report.card.process, report.number, std::move(why)});
}

void group_book::gone(std::uint64_t process, const std::string& why, steady_time real_now) {
  const steady_time now = clock_.look(real_now);
  for (place& s : places_) {
    if (s.other && s.other->latest.card.process == process) s.other.reset();
    if (!s.latest || s.latest->card.process != process) continue;
    s.ended = true;
    s.vacant_from = {};
    lose(s, why, now, true);
  }
}

void group_book::link_closed(std::uint64_t process) {
  for (place& s : places_) {
    if (s.latest && s.latest->card.process == process) s.link_closed = true;
  }
}

void group_book::held(std::uint64_t process, steady_time now) {
  clock_.look(now);
  for (place& s : places_) {
    if (s.latest && s.latest->card.process == process) s.heard = clock_.ran();
  }
}

void group_book::lose(place& s, const std::string& why, steady_time now, bool has_ended) {
  if (!s.present) return;
  s.present = false;
  s.cleared = false;
  s.missing_since = now;
  s.why_lost = why;
  outbox_.push_back(group_event{group_event::kind::lost, rank_of(s), fmt::format("{}: {}", name_of(*s.latest), why), s.latest->card.pid, has_ended});
  communicator_.break_off();
  // Losing a rank that has delivered everything does not fail the group.
  if (settings_.waits_for_lost || s.latest->stream_over) return;
  fail(*s.latest, why);
}

void group_book::communicator_id(std::uint64_t number, std::string id) {
  if (number == view_.communicator) communicator_.drawn(std::move(id));
}

void group_book::fail(const member_report& whose, std::string cause) {
  end(group_outcome::failed, group_cause{whose.card.rank, whose.card.host, whose.card.pid, std::move(cause)});
}

void group_book::end(group_outcome how, std::optional<group_cause> cause) {
  if (over()) return;
  view_.outcome = how;
  view_.cause = std::move(cause);
  view_.phase = group_phase::over;
  note(group_event::kind::over, view_.cause ? view_.cause->rank : 0,
       view_.cause ? view_.cause->cause : std::string());
}

void group_book::note(group_event::kind what, std::uint32_t rank, std::string text) {
  outbox_.push_back(group_event{what, rank, std::move(text)});
}

}  // namespace penstock::group
