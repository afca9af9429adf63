// What the coordinator decides between two events: group_book.hpp has the states.
#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"
#include "runtime/group/group_book.hpp"

#include <fmt/core.h>

namespace penstock::group {
namespace {

bool said(const std::optional<member_report>& latest, bool member_report::*flag) {
  return latest && (*latest).*flag;
}

/// A rank that its launcher has restarted resumes at its own position, whatever the positions of the others.
/// This holds even if no rank remembers that the group had begun.
bool was_started_again(const member_report& rank) {
  return rank.card.starts > 0;
}

/// Whether `b` contains nothing new for a rank that got `a`, so that it need not be sent at once.
bool says_the_same(const group_order& a, const group_order& b) {
  return a.view == b.view && a.standing == b.standing && a.incarnation == b.incarnation && a.go == b.go &&
         a.everybody_knows == b.everybody_knows && a.lost == b.lost && a.communicator == b.communicator;
}

}  // namespace

std::vector<group_command> group_book::advance(steady_time real_now) {
  const steady_time now = clock_.look(real_now);
  find_silent(now);
  let_competitors_in(now);
  gather(now);
  compare_datasets();
  await_lost(now);
  watch_the_end();
  tend_communicator();
  if (over()) {
    if (!over_since_) over_since_ = now;
    may_leave_ = may_leave_ || everybody_knows() || now - *over_since_ >= settings_.end_grace;
  }
  write_orders(now);
  return std::exchange(outbox_, {});
}

void group_book::find_silent(steady_time now) {
  for (place& s : places_) {
    if (s.other && now - s.other->heard > settings_.lost_after) s.other.reset();
    // This number can grow without a report of this rank: another rank reports what an
    // earlier coordinator told it.
    std::uint32_t& known = view_.incarnations[rank_of(s)];
    if (s.present && s.incarnation != 0 && s.incarnation < known) {
      if (s.latest->card.process == settings_.process) {  // no process of rank 0 is newer than this one
        s.incarnation = ++known;
        continue;
      }
      s.ended = true;
      // Unaware that it was replaced, the process may still hand out batches until then.
      s.vacant_from = now + settings_.lost_after;
      lose(s, "was replaced before rank 0 was started again", now);
    }
    if (!s.present || now - s.heard <= settings_.lost_after) continue;
    const std::string why =
        fmt::format("nothing heard from it for {}", duration_as_config(settings_.lost_after));
    // The other ranks could not hear this process, so rank 0 is the first cause; they gave the same reason.
    if (missed_by(s) && !settings_.waits_for_lost && places_.front().latest)
      fail(*places_.front().latest, why);
    lose(s, why, now);
  }
}

/// This process was suspended for so long that the rank considered it lost: the rank closed its link and has been silent since.
bool group_book::missed_by(const place& s) const {
  return s.link_closed && clock_.stood_still() - s.stood_still > settings_.lost_after - 2 * settings_.beat();
}

void group_book::let_competitors_in(steady_time now) {
  if (over()) return;
  for (place& s : places_) {
    if (s.present || !s.other || now < s.vacant_from) continue;
    const member_report next = std::exchange(s.other, std::nullopt)->latest;
    claim(s, next, now);
  }
}

void group_book::gather(steady_time now) {
  if (established_ || over()) return;
  const bool all = std::ranges::all_of(places_, &place::present);
  const bool waited = now - since_ >= settings_.lost_after;
  if (takes_over()) {
    // A rank is uncertain if another process of it, earlier or later than this one, may be cut off from all
    // others and still hand out batches.
    const auto uncertain = [&](const place& s) {
      return rank_of(s) != 0 && s.latest && s.latest->card.starts == 0 && !s.latest->card.one_at_a_time &&
             (s.incarnation == 0 || s.latest->lapsed);
    };
    if (waited || (all && std::ranges::none_of(places_, uncertain))) establish(now);
    return;
  }
  if (all) return establish(now);
  std::string late;
  std::string arrived;
  std::string twice;
  std::optional<std::uint32_t> first;
  for (const place& s : places_) {
    if (s.present && s.other) twice += started_twice(*s.latest, s.other->latest) + "; ";
    if (s.present) {
      arrived += (arrived.empty() ? "" : ", ") + name_of(s.latest->card);
    } else if (now - s.missing_since > settings_.join_timeout) {
      if (!first) first = rank_of(s);
      late += (late.empty() ? "" : ", ") + std::to_string(rank_of(s));
      if (!s.why_lost.empty()) late += fmt::format(" ({})", s.why_lost);
    }
  }
  if (!first) return;
  end(group_outcome::failed,
      group_cause{*first,
                  {},
                  0,
                  fmt::format("{}rank {} did not arrive within {}; arrived: {}{}", twice, late,
                              duration_as_config(settings_.join_timeout), arrived.empty() ? "none" : arrived,
                              refused_last_.empty() ? "" : "; refused: " + refused_last_)});
}

void group_book::establish(steady_time now) {
  established_ = true;
  view_.generation = generation_known_ + 1;
  view_.coordinator = settings_.process;
  bool holds_one = false;
  for (place& s : places_) {
    if (!s.present) {
      s.missing_since = now;
      if (s.why_lost.empty()) s.why_lost = "has not reported since rank 0 was started again";
      continue;
    }
    std::uint32_t& incarnation = view_.incarnations[rank_of(s)];
    if (s.incarnation == 0) s.incarnation = ++incarnation;
    holds_one = holds_one || !shared_communicator::is_clean(s.latest->communicator);
  }
  communicator_.begin(holds_one);
  view_.phase = begun() ? group_phase::running : group_phase::describing;
  note(
      group_event::kind::established, 0,
      fmt::format("generation {}, {}", view_.generation, counted(places_.size() - missing().size(), "rank")));
}

void group_book::compare_datasets() {
  if (!established_ || over()) return;
  // A rank that joined late has brought the news that the group had already begun.
  if (begun() && view_.phase == group_phase::describing) view_.phase = group_phase::running;
  const member_report* first = nullptr;
  const member_report* first_anew = nullptr;  // the first rank whose position the other ranks must share
  bool all = true;
  for (place& s : places_) {
    if (!s.present || !s.latest->facts) {
      all = false;
      continue;
    }
    if (s.cleared) continue;
    if (begun()) {
      s.cleared = s.latest->facts->fingerprint == view_.facts->fingerprint;
      if (s.cleared) continue;
      s.ended = true;
      lose(s,
           fmt::format("its dataset has the fingerprint {}, but the group's has {}",
                       s.latest->facts->fingerprint, view_.facts->fingerprint),
           s.heard);
      continue;
    }
    const member_report& one = *s.latest;
    const bool goes_on = settings_.waits_for_lost && was_started_again(one);
    if (first == nullptr) first = &one;
    if (first_anew == nullptr && !goes_on) first_anew = &one;
    const member_report& other =
        one.facts->fingerprint == first->facts->fingerprint && !goes_on ? *first_anew : *first;
    const stream_facts& a = *other.facts;
    const stream_facts& b = *one.facts;
    if (goes_on ? a.fingerprint == b.fingerprint : a == b) continue;
    const auto text = [](const stream_facts& f) {
      return fmt::format("{} from position {} of epoch {}", f.fingerprint, f.position, f.epoch);
    };
    return fail(one, fmt::format("the dataset is {} at {}, but {} at {}", text(a), name_of(other.card),
                                 text(b), name_of(one.card)));
  }
  if (begun() || !all) return;
  view_.facts = first->facts;
  view_.phase = group_phase::running;
  for (place& s : places_) s.cleared = true;
  note(group_event::kind::going, 0, "all ranks have described the same dataset");
}

void group_book::await_lost(steady_time now) {
  if (!established_ || over() || view_.phase == group_phase::stopping) return;
  const nanoseconds timeout = begun() ? settings_.rejoin_timeout : settings_.join_timeout;
  for (const place& s : places_) {
    if (s.present) continue;
    const bool whole = said(s.latest, &member_report::stream_over);
    // Other ranks may need this rank for common steps, even if it has nothing left to deliver. If the
    // launcher restarts this rank, the rank looks for the group.
    const bool is_needed = settings_.communicator && settings_.common_steps && !is_through(s);
    if (whole && !is_needed && !settings_.waits_for_lost) continue;
    const nanoseconds patience = settings_.waits_for_lost ? timeout
                                 : whole                  ? settings_.lost_after
                                                          : nanoseconds(0);
    if (now - s.missing_since <= patience) continue;
    const std::string why = patience > nanoseconds(0) ? fmt::format("{}, and did not come back within {}",
                                                                    s.why_lost, duration_as_config(patience))
                                                      : s.why_lost;
    const rank_card card = s.latest ? s.latest->card : rank_card{};
    return end(group_outcome::failed, group_cause{rank_of(s), card.host, card.pid, why});
  }
}

void group_book::watch_the_end() {
  if (over()) return;
  if (stop_wanted_ && !begun() && (established_ || !takes_over()))
    return end(group_outcome::stopped, std::nullopt);
  if (!established_ || !begun()) return;
  // If the group waits for lost ranks, their launcher restarts them. If the group ended before that, a
  // restarted rank would find no coordinator.
  const auto whole = [&](const place& s) {
    return said(s.latest, &member_report::stream_over) && (s.present || !settings_.waits_for_lost);
  };
  if (std::ranges::all_of(places_, whole)) return end(group_outcome::finished, std::nullopt);
  if (!stop_wanted_) return;
  if (std::exchange(view_.phase, group_phase::stopping) != group_phase::stopping)
    note(group_event::kind::stopping, 0, "all ranks pause at their next batch");
  freeze();
}

void group_book::freeze() {
  bool all_frozen = true;
  std::uint64_t most = view_.limit.value_or(0);
  for (const place& s : places_) {
    if (!s.latest) continue;
    most = std::max(most, s.latest->steps);
    if (s.present && !s.latest->frozen && !s.latest->stream_over) all_frozen = false;
  }
  if (!all_frozen) return;
  view_.limit = most;
  const auto done = [&](const place& s) {
    return !s.present || s.latest->stream_over || s.latest->steps >= most;
  };
  // Each of the remaining steps needs all ranks and the communicator, so no rank can take them.
  const bool stuck = settings_.communicator && !communicator_.ready();
  // Common steps are final only once all of them are agreed. Until then, a rank may have to go
  // back to an earlier step.
  const bool kept = !settings_.communicator || view_.agreed >= most;
  if (stuck || (kept && std::ranges::all_of(places_, done))) end(group_outcome::stopped, std::nullopt);
}

void group_book::tend_communicator() {
  if (!settings_.communicator || !established_ || !begun() || over()) return;
  std::vector<shared_communicator::rank> ranks;
  for (const place& s : places_) {
    const bool finished = settings_.common_steps && said(s.latest, &member_report::stream_over);
    ranks.push_back({s.latest ? &*s.latest : nullptr, s.present, s.present && s.cleared, finished});
  }
  communicator_.agree_on_snapshot(view_, ranks);
  if (communicator_.tend(view_, ranks, settings_.process))
    outbox_.emplace_back(draw_communicator_id{view_.communicator});
}

/// This rank's program has finished, and all ranks have taken its last step with it, so no
/// rank needs its GPU owner.
bool group_book::is_through(const place& s) const {
  return settings_.common_steps && said(s.latest, &member_report::stream_over) &&
         s.latest->steps <= view_.agreed;
}

group_order group_book::order_for(const place& s) const {
  group_order order;
  order.view = view_;
  order.incarnation = s.incarnation;
  order.everybody_knows = may_leave_;
  order.lost = missing();
  order.communicator = communicator_.order(view_.communicator);
  if (const auto& own = places_.front().latest) {
    order.host = own->card.host;
    order.pid = own->card.pid;
  }
  if (s.present) {
    // An unanswered report does not extend the rank's right to hand out batches.
    order.heard = s.latest->number;
    order.standing = established_ ? rank_standing::member : rank_standing::waiting;
    order.go = established_ && s.cleared;
  } else {
    order.standing = rank_standing::lost;
  }
  return order;
}

void group_book::write_orders(steady_time now) {
  for (place& s : places_) {
    if (!s.latest || s.ended) continue;
    group_order order = order_for(s);
    if (s.told_at != never && now - s.told_at < settings_.beat() && says_the_same(s.told, order)) continue;
    order.number = ++orders_;
    s.told = order;
    s.told_at = now;
    outbox_.emplace_back(send_order{s.latest->card.process, std::move(order)});
  }
  for (unknown_peer& who : std::exchange(unknown_peers_, {})) {
    // Waiting processes may now be admitted. Their next reports decide whether they are.
    if (over() && who.refusal.empty()) continue;
    group_order order;
    order.view = view_;
    order.number = ++orders_;
    order.standing = who.refusal.empty() ? rank_standing::waiting : rank_standing::refused;
    order.refusal = std::move(who.refusal);
    outbox_.emplace_back(send_order{who.process, std::move(order)});
  }
}

std::vector<std::uint32_t> group_book::missing() const {
  std::vector<std::uint32_t> ranks;
  for (const place& s : places_) {
    if (!s.present) ranks.push_back(rank_of(s));
  }
  return ranks;
}

bool group_book::everybody_knows() const {
  return std::ranges::all_of(places_, [&](const place& s) {
    if (s.other || s.earlier_may_live) return false;
    const bool said_so = s.latest && s.latest->view.outcome != group_outcome::none;
    if (s.present) return said_so;
    // The rank was lost after all ranks had delivered everything. Its next process will ask for the outcome.
    if (settings_.waits_for_lost && established_ && view_.outcome == group_outcome::finished)
      return said_so || s.knows_end;
    // A rank that has not arrived yet would look for the coordinator until join_timeout has passed.
    return established_ || s.latest || s.knows_end;
  });
}

}  // namespace penstock::group
