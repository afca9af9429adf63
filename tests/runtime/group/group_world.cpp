#include "tests/runtime/group/group_world.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace penstock::testing {

using namespace group;
using namespace std::chrono_literals;

namespace {

constexpr nanoseconds lost_after = 800ms;
constexpr nanoseconds patience = 60s;   // join_timeout and rejoin_timeout
constexpr nanoseconds long_away = 20s;  // no rank is away this long unless a script says so
constexpr nanoseconds beat = 100ms;
constexpr nanoseconds end_grace = 500ms;          // for the coordinator
constexpr nanoseconds left_behind_after = 200ms;  // for a launcher that learns how the group ended

void must(bool holds, const std::string& otherwise) {
  if (!holds) throw violation{otherwise};
}

}  // namespace

group_world::group_world(const group_world_settings& settings, group_world_tally& tally)
    : settings_(settings), tally_(tally), ranks_(settings.ranks) {
  may_fail_ = settings.odd.has_value() || settings.odd_data.has_value();
  for (launched_rank& r : ranks_) r.away_since = now_;
}

group_world::process* group_world::newest(std::uint32_t rank) {
  for (auto p = alive_.rbegin(); p != alive_.rend(); ++p) {
    if ((*p)->rank == rank) return p->get();
  }
  return nullptr;
}

group_world::process* group_world::coordinator() {
  process* p = newest(0);
  return p != nullptr && p->coordinator ? p : nullptr;
}

group_world::process* group_world::any(std::uint32_t pick) {
  return alive_.empty() ? nullptr : alive_[pick % alive_.size()].get();
}

/// A rank that misses the group's end is no fault: its launcher handles that.
bool group_world::launcher_settles_the_end() const {
  return settings_.launcher_hears_end && settings_.waits && told_at_ != never;
}

bool group_world::starts_again(std::uint32_t rank) {
  const launched_rank& r = ranks_[rank];
  if (newest(rank) != nullptr || r.over || (!settings_.waits && r.starts > 0)) return false;
  if (told_at_ == never) return true;
  if (launcher_settles_the_end()) finish_alone(rank);
  // Other launchers do not know the end; if the group has failed or was stopped, that does no harm.
  return !settings_.launcher_hears_end && settings_.waits && told_ == group_outcome::finished;
}

/// A launcher that knows how the group ended starts no process that would look for the group.
void group_world::finish_alone(std::uint32_t rank) {
  launched_rank& r = ranks_[rank];
  r.over = true;
  if (told_ == group_outcome::finished) r.delivered = r.steps = settings_.batches;
}

/// The launcher ends processes that do not learn of the end within some time.
void group_world::end_those_left_behind() {
  if (!launcher_settles_the_end() || now_ - told_at_ < left_behind_after) return;
  std::vector<process*> left;
  for (auto& p : alive_) {
    if (!p->end && p->book().view().outcome == group_outcome::none) left.push_back(p.get());
  }
  for (process* p : left) {
    const std::uint32_t rank = p->rank;
    kill(*p, false);
    if (newest(rank) == nullptr) finish_alone(rank);
  }
}

group_world::process& group_world::start(std::uint32_t rank) {
  launched_rank& launched = ranks_[rank];
  auto p = std::make_unique<process>();
  p->token = ++tokens_;
  p->rank = rank;
  p->started = p->up_since = p->down_since = now_;
  member_settings m;
  m.card.rank = rank;
  m.card.world_size = settings_.ranks;
  m.card.process = p->token;
  m.card.starts = settings_.counts_starts ? launched.starts : 0;
  m.card.one_at_a_time = settings_.counts_starts;
  m.card.host = "host";
  m.card.pid = static_cast<std::int32_t>(p->token);
  m.card.settings = {{"sampler.seed", settings_.odd == rank ? "2" : "1"}};
  m.waits_for_lost = settings_.waits;
  m.communicator = settings_.communicator;
  m.join_timeout = m.rejoin_timeout = patience;
  m.lost_after = lost_after;
  m.end_grace = 600ms;
  p->driver = std::make_unique<rank_driver>(rank_setup{m, "somewhere"}, launched.steps, now_);
  if (settings_.communicator) p->book().begins_at(launched.steps);
  if (launched.steps >= settings_.batches) p->book().stream_ended();
  if (rank == 0) {
    group_settings g;
    g.world_size = settings_.ranks;
    g.process = p->token;
    g.waits_for_lost = settings_.waits;
    g.communicator = settings_.communicator;
    g.join_timeout = g.rejoin_timeout = patience;
    g.lost_after = lost_after;
    g.end_grace = end_grace;
    p->coordinator = std::make_unique<coordinator_driver>(g, "group", now_);
    if (++coordinators_ > 1) ++tally_.takeovers;
  }
  if (launched.starts++ > 0) ++tally_.replaced;
  launched.away_since = never;
  return *alive_.emplace_back(std::move(p));
}

void group_world::kill(process& p, bool loses_words) {
  launched_rank& launched = ranks_[p.rank];
  if (!settings_.waits) may_fail_ = true;
  // The next process may find no rank that can tell it how the group ended.
  if (decided_at_ != never && (!settings_.launcher_hears_end || !settings_.waits))
    may_fail_ = may_differ_ = true;
  launched.stop_disturbed = true;
  launched.away_since = std::min(launched.away_since, now_);
  if (!p.up.empty()) last_words_.push_back(p.up.back());
  if (p.coordinator) {
    may_differ_ = true;
    last_words_.clear();  // these reports were in transit to the coordinator
    for (auto& other : alive_) {
      other->up.clear();
      other->down.clear();
      if (!other->cut_down && other.get() != &p) tell_rank(*other, std::nullopt);
    }
  } else if (coordinator() != nullptr && !p.cut_up) {
    while (!loses_words && !p.up.empty()) carry_up(p, false);
    tell_coordinator(p.token, std::nullopt);
  }
  std::erase_if(alive_, [&](const auto& one) { return one.get() == &p; });
}

/// Kills a process that has delivered everything and is waiting for the others or ending.
void group_world::kill_whole(std::uint32_t pick) {
  std::vector<process*> whole;
  for (auto& p : alive_) {
    if (p->book().steps() == settings_.batches) whole.push_back(p.get());
  }
  if (!whole.empty()) kill(*whole[pick % whole.size()], pick % 3 == 0);
}

/// A host is disconnected, and its rank restarts on another one.
void group_world::twin(std::uint32_t rank) {
  process* const old = newest(rank);
  if (rank == 0 || old == nullptr || settings_.counts_starts || alive_.size() > settings_.ranks + 2UL) return;
  if (!settings_.waits) may_fail_ = true;
  if (old->book().incarnation() == 0) may_fail_ = true;  // to the group, both may look alive at once
  old->cut_up = old->cut_down = true;
  ranks_[rank].stop_disturbed = true;
  ranks_[rank].twins = true;
  ++tally_.twins;
  may_differ_ = true;
  start(rank);
}

void group_world::hear(process& c, link_id link, const member_report& report) {
  const group_view& known = report.view;
  if (known.generation > 0 && known.generation >= c.known_generation) {
    const std::uint64_t group = group_of_.at(known.coordinator);
    const bool two = known.generation == c.known_generation && group != c.known_group;
    c.known_generation = known.generation;
    c.known_group = two ? c.token : group;  // a mix of two groups counts as neither
  }
  c.coordinator->reported(link, report, now_);
}

/// Delivers a message at once or, if the coordinator's process is suspended, when it continues.
void group_world::tell_coordinator(link_id link, std::optional<member_report> report) {
  process* const c = coordinator();
  if (c == nullptr) return;
  c->reports.emplace_back(link, std::move(report));
  if (!stands_still(*c)) wake(*c);
}

void group_world::tell_rank(process& p, std::optional<group_order> order) {
  p.orders.push_back(std::move(order));
  if (!stands_still(p)) wake(p);
}

/// Receives the messages that have arrived.
void group_world::wake(process& p) {
  while (!p.reports.empty()) {
    const auto [link, report] = std::move(p.reports.front());
    p.reports.pop_front();
    if (report) {
      hear(p, link, *report);
    } else {
      p.coordinator->closed(link);
      if (settings_.deaths_seen) p.coordinator->process_ended(link, now_);
    }
  }
  while (!p.orders.empty()) {
    const auto order = std::move(p.orders.front());
    p.orders.pop_front();
    if (order) {
      p.driver->link_made();
      p.driver->heard(*order, now_);
    } else {
      p.driver->link_lost({"rank 0 has ended", true});
      if (settings_.deaths_seen) p.book().coordinator_gone("rank 0 has ended");
    }
  }
}

/// A message of a group unknown to the current one.
bool group_world::former(const process& p) const {
  const group_view& known = p.book().view();
  return known.generation > 0 && group_of_.at(known.coordinator) != group_;
}

void group_world::carry_up(process& p, bool again) {
  if (p.up.empty()) return;
  if (!p.cut_up) tell_coordinator(p.token, p.up.front());
  if (again) return;
  p.up.pop_front();
  p.up_since = now_;
}

void group_world::carry_down(process& p, bool again) {
  if (p.down.empty()) return;
  const group_order order = p.down.front();
  if (!again) {
    p.down.pop_front();
    p.down_since = now_;
  }
  if (p.cut_down) return;
  if (const process* c = coordinator(); c != nullptr && order.heard > 0) p.let_in_by = c->token;
  if (order.standing == rank_standing::refused) ++tally_.refused;
  p.old_orders.push_back(order);
  if (p.old_orders.size() > 8) p.old_orders.pop_front();
  tell_rank(p, order);
}

bool group_world::hands_out(const process& p) const {
  if (p.end || stands_still(p)) return false;
  if (settings_.goes_on_when_cut_off && p.handed_out) return p.book().steps() < settings_.batches;
  return p.book().may_hand_out(now_);
}

void group_world::hand_over(process& p) {
  if (!hands_out(p)) return;
  must(!settings_.odd && !settings_.odd_data, "a rank hands out batches although the ranks disagree");
  p.handed_out = true;
  const std::uint64_t steps = p.book().steps() + 1;
  p.book().delivered(steps);
  if (settings_.communicator) p.book().held({steps});
  ranks_[p.rank].delivered = std::max(ranks_[p.rank].delivered, steps);
  if (steps == settings_.batches) p.book().stream_ended();
  if (newest(p.rank) == &p && tokens_ % 2 == 0)
    ranks_[p.rank].steps = steps;  // otherwise the launcher learns of these steps later
}

void group_world::do_nccl(process& p) {
  if (stands_still(p)) return;
  if (p.to_abort) {
    p.made = 0;
    p.to_make.reset();
    p.book().communicator_aborted(*std::exchange(p.to_abort, std::nullopt));
    ++tally_.aborts;
  } else if (p.to_make) {
    const make_communicator make = *std::exchange(p.to_make, std::nullopt);
    must(p.made == 0, "a communicator is made while another one exists");
    for (const auto& other : alive_) {
      must(former(p) || former(*other) || other->made != make.number || other->made_id == make.id,
           "two communicators have one number");
    }
    p.made = make.number;
    p.made_id = make.id;
    made_by_[make.id].insert(p.rank);
    p.book().communicator_made(make.number);
  }
}

void group_world::advance_coordinator(process& p) {
  for (coordinator_command& c : p.coordinator->advance(now_)) {
    if (auto* send = std::get_if<send_over_link>(&c)) {
      must(send->link == send->process, "an order leaves over the link of another process");
      for (auto& to : alive_) {
        if (to->token == send->process && !to->cut_down && to->down.size() < 50)
          to->down.push_back(std::move(send->order));
      }
    } else if (auto* draw = std::get_if<draw_communicator_id>(&c)) {
      p.coordinator->communicator_drawn(draw->number, fmt::format("id {}", ++draws_));
    } else if (std::get<coordinator_news>(c).text.ends_with(" is back")) {
      ++tally_.back;
    }
  }
  if (p.coordinator->view().coordinator == p.token && !group_of_.contains(p.token))
    group_ = group_of_[p.token] = p.known_generation > 0 ? p.known_group : p.token;
}

void group_world::advance_member(process& p) {
  if (!p.described && p.book().view().generation > 0) {
    p.described = true;
    p.book().described({settings_.odd_data == p.rank ? "other" : "same", 0, 0});
  }
  for (member_command& c : p.driver->advance(now_)) {
    if (auto* report = std::get_if<send_report>(&c)) {
      if (coordinator() != nullptr && !p.cut_up && p.up.size() < 50)
        p.up.push_back(std::move(report->report));
    } else if (auto* make = std::get_if<make_communicator>(&c)) {
      p.to_make = *make;
    } else if (auto* abort = std::get_if<abort_communicator>(&c)) {
      p.to_abort = abort->number;
    } else {
      p.end = std::get<end_rank>(c);
      ended(p);
    }
  }
}

void group_world::ended(process& p) {
  const group_view& known = p.book().view();
  launched_rank& launched = ranks_[p.rank];
  if (newest(p.rank) == &p) launched.steps = std::max(launched.steps, p.book().steps());
  if (p.end->how == group_outcome::finished) {
    // Another process of this rank may have delivered the batch: the previous one if steps need all ranks, otherwise a twin.
    const bool another = settings_.communicator || launched.twins;
    const bool whole = (another ? launched.delivered : p.book().steps()) == settings_.batches;
    must(whole, "a group has finished, but a rank has not delivered all batches");
  }
  const bool undisturbed = !launched.stop_disturbed && !settings_.communicator && !left_;
  if (p.end->how == group_outcome::stopped && known.limit && undisturbed && p.handed_out)
    must(p.book().steps() == *known.limit || p.book().steps() == settings_.batches,
         fmt::format("a rank has stopped at step {} and not at {}", p.book().steps(), *known.limit));
  if (known.outcome != group_outcome::none) {
    ++tally_.outcomes[known.outcome];
    ends_.push_back(*p.end);
    launched.over = true;
    if (told_at_ == never) {
      told_at_ = now_;
      told_ = known.outcome;
    }
    // Rank 0 died at that moment, and its next process asks ranks that have exited.
    const process* c = coordinator();
    const bool unknown = c == nullptr || c->coordinator->view().outcome == group_outcome::none;
    if (unknown && !launcher_settles_the_end()) may_fail_ = may_differ_ = true;
  } else {
    const bool alone = told_ == group_outcome::finished && p.end->cause &&
                       p.end->cause->cause.starts_with("cannot be reached");
    // If a rank had two processes at once, the group may finish with one of them while a third replaces the other.
    must(!alone || may_fail_ || launched.twins,
         "a rank was started again, but there is no longer a group that it could join");
    // The process was refused, replaced or disconnected: its launcher may restart the rank.
    launched.over = launched.over || !settings_.waits || left_ || alone;
    if (newest(p.rank) == &p) launched.away_since = std::min(launched.away_since, now_);
  }
}

void group_world::remove_ended() {
  for (std::size_t i = 0; i < alive_.size();) {
    process& p = *alive_[i];
    if (p.end && !stands_still(p)) {
      p.driver->leave(now_);
      if (p.coordinator) p.coordinator->leave(now_);
    }
    const bool goes = !stands_still(p) && p.driver->may_go() && (!p.coordinator || p.coordinator->may_go());
    if (!goes) {
      ++i;
      continue;
    }
    // A rank that has not learned of the end by then never will.
    const bool late = now_ - decided_at_ >= end_grace && !launcher_settles_the_end();
    if (p.coordinator && p.coordinator->view().outcome != group_outcome::none && late)
      may_fail_ = may_differ_ = true;
    if (!p.end) ranks_[p.rank].over = true;  // the rank has delivered everything, and does not wait for the others
    exits(p);
  }
}

/// The messages of a process arrive before its connection closes.
void group_world::exits(process& p) {
  const bool coordinates = coordinator() == &p;
  for (auto& other : alive_) {
    if (!coordinates || other.get() == &p) continue;
    while (!other->down.empty()) carry_down(*other, false);
    if (!other->cut_down) tell_rank(*other, std::nullopt);
  }
  if (!coordinates && !p.cut_up) {
    while (!p.up.empty()) carry_up(p, false);
    tell_coordinator(p.token, std::nullopt);
  }
  std::erase_if(alive_, [&](const auto& one) { return one.get() == &p; });
}

void group_world::advance() {
  for (auto& p : alive_) {
    if (!stands_still(*p) && p->token % 2 == 0)
      wake(*p);  // other processes notice first that time has passed
  }
  if (process* c = coordinator(); c != nullptr && !stands_still(*c)) {
    advance_coordinator(*c);
    if (c->coordinator->view().outcome != group_outcome::none) decided_at_ = std::min(decided_at_, now_);
  }
  for (auto& p : alive_) {
    if (!stands_still(*p)) advance_member(*p);
  }
  for (auto& p : alive_) {
    if (!stands_still(*p)) wake(*p);
  }
  remove_ended();
  end_those_left_behind();
}

void group_world::check() {
  std::map<std::pair<std::uint32_t, std::uint64_t>, int> handing;
  for (const auto& p : alive_) {
    // After the end a coordinator exits, and the next one cannot know which rank is delivering its remaining batches.
    const bool rest = ranks_[p->rank].twins && p->book().delivers_the_rest();
    const std::uint64_t by = rest ? p->let_in_by : 0;
    if (!former(*p) && hands_out(*p) && ++handing[{p->rank, by}] > 1)
      throw violation{"two processes of one rank may hand out batches at the same time"};
    if (!p->end && p->book().may_communicate()) {
      must(p->made != 0, "a rank uses a communicator that it has not made");
      must(made_by_[p->made_id].size() == settings_.ranks,
           "a communicator is used that not all ranks have made");
    }
  }
  for (launched_rank& r : ranks_) {
    if (r.away_since != never && now_ - r.away_since > long_away) may_fail_ = may_differ_ = true;
  }
  for (const auto& p : alive_) {
    const nanoseconds on_the_way = now_ - std::min(p->up_since, p->down_since);
    if (on_the_way > lost_after) ranks_[p->rank].stop_disturbed = true;
    // The same applies to a long wait for the first meaningful order.
    const bool outside = !p->end && p->book().view().generation == 0 && now_ - p->started > long_away;
    if (on_the_way > long_away || outside) may_fail_ = may_differ_ = true;
  }
}

/// If silence counts as a loss, the group may end and name only the silent rank.
void group_world::pause_one(process& p, nanoseconds time) {
  if (stands_still(p)) return;
  p.stands_still_until = now_ + time;
  ranks_[p.rank].stop_disturbed = true;
  ++tally_.pauses;
  if (!settings_.waits && time > lost_after - 6 * beat) paused_.insert(p.rank);
}

/// A suspended job: no process runs for a while, and the processes do not all continue at the same moment.
void group_world::pause_all(std::uint32_t pick) {
  if (now_ - paused_at_ < lost_after) return;  // otherwise one rank could be late twice
  const nanoseconds time = nanoseconds(100ms) * (1 + pick % 60);
  now_ += time;
  paused_at_ = now_;
  exchanged_ = now_;
  for (auto& p : alive_) {
    const nanoseconds later = 1ms * static_cast<int>(p->token * pick % 200);
    p->stands_still_until = std::max<steady_time>(p->stands_still_until + time, now_ + later);
    p->started += time;
    p->up_since += time;
    p->down_since += time;
  }
  for (launched_rank& r : ranks_) {
    r.stop_disturbed = true;
    if (r.away_since != never) r.away_since += time;
  }
  if (decided_at_ != never) decided_at_ += time;
  if (told_at_ != never) told_at_ += time;
  ++tally_.pauses;
}

void group_world::pass(nanoseconds time) {
  now_ += time;
  // If silence ends a group, that must not happen by chance alone.
  if (!settings_.waits && now_ - exchanged_ > beat) exchange();
  for (auto& p : alive_) {
    if (newest(p->rank) == p.get()) ranks_[p->rank].steps = p->book().steps();
    if (p->cut_up || p->cut_down) ranks_[p->rank].away_since = std::min(ranks_[p->rank].away_since, now_);
    if (p->up.empty()) p->up_since = now_;
    if (p->down.empty()) p->down_since = now_;
  }
}

void group_world::exchange() {
  exchanged_ = now_;
  for (auto& p : alive_) {
    while (!p->up.empty()) carry_up(*p, false);
    while (!p->down.empty()) carry_down(*p, false);
  }
}

void group_world::accident(group_act what, std::uint32_t pick) {
  process* const p = any(pick);
  if (what == group_act::start) {
    const std::uint32_t rank = pick % settings_.ranks;
    if (starts_again(rank)) start(rank);
    return;
  }
  if (p == nullptr) return;
  switch (what) {
    case group_act::lose:
      if (!settings_.waits) may_fail_ = may_differ_ = true;  // often enough, this counts as silence
      if (pick % 2 == 0 && !p->up.empty()) p->up.pop_front();
      if (pick % 2 == 1 && !p->down.empty()) p->down.pop_front();
      break;
    case group_act::repeat: pick % 2 == 0 ? carry_up(*p, true) : carry_down(*p, true); break;
    case group_act::late:
      if (!p->old_orders.empty() && pick % 2 == 0) tell_rank(*p, p->old_orders[pick % p->old_orders.size()]);
      if (!last_words_.empty() && pick % 2 == 1) {
        const member_report& words = last_words_[pick % last_words_.size()];
        tell_coordinator(words.card.process, words);
      }
      break;
    case group_act::kill: kill(*p, pick % 3 == 0); break;
    case group_act::kill_whole: kill_whole(pick); break;
    case group_act::cut:
      if (p->rank == 0) break;
      if (!settings_.waits) may_fail_ = may_differ_ = true;
      p->cut_up = p->cut_up || pick % 3 != 0;
      p->cut_down = p->cut_down || pick % 3 != 1;
      ranks_[p->rank].stop_disturbed = true;
      p->up.clear();
      p->down.clear();
      ++tally_.cut_off;
      break;
    case group_act::heal:
      p->cut_up = p->cut_down = false;
      if (newest(p->rank) == p) ranks_[p->rank].away_since = never;
      break;
    case group_act::stop:
      p->book().want_stop();
      if (!std::exchange(stopped_, true)) ++tally_.stops;
      break;
    case group_act::break_nccl:
      if (p->made != 0) p->book().communicator_broken(p->made, "an asynchronous error");
      break;
    case group_act::leave:
      p->driver->leave(now_);
      left_ = may_fail_ = may_differ_ = true;
      break;
    case group_act::fail:
      p->book().fail("out of memory");
      may_fail_ = may_differ_ = true;
      break;
    case group_act::twin: twin(pick % settings_.ranks); break;
    case group_act::wait:
      for (std::uint32_t i = 0; i < 6 + pick % 18; ++i) {
        now_ += 50ms;
        exchanged_ = now_;
        advance();
      }
      pass(0ms);
      if (!settings_.waits) may_fail_ = may_differ_ = true;
      for (launched_rank& r : ranks_) r.stop_disturbed = true;
      break;
    case group_act::pause_one: pause_one(*p, nanoseconds(100ms) * (1 + pick / 7 % 30)); break;
    case group_act::pause_all: pause_all(pick); break;
    default: break;
  }
}

void group_world::perform(step<group_act> s) {
  process* const p = any(s.pick);
  switch (s.what) {
    case group_act::pass: pass(nanoseconds(1ms) * (s.pick % 60)); break;
    case group_act::hand_over:
      if (p != nullptr) hand_over(*p);
      break;
    case group_act::deliver:
      if (p != nullptr) s.pick % 2 == 0 ? carry_up(*p, false) : carry_down(*p, false);
      break;
    case group_act::nccl:
      if (p != nullptr) do_nccl(*p);
      break;
    case group_act::exchange: exchange(); break;
    default: accident(s.what, s.pick);
  }
  advance();
  check();
}

void group_world::finish() {
  for (int round = 0;; ++round) {
    must(round < 4000, "the group does not end");
    pass(50ms);
    bool over = true;
    for (std::uint32_t rank = 0; rank < settings_.ranks; ++rank) {
      if (starts_again(rank)) start(rank);
      must(ranks_[rank].starts < 1000, "a rank is restarted forever");
    }
    for (auto& p : alive_) {
      p->cut_up = p->cut_down = false;
      ranks_[p->rank].away_since = never;
    }
    exchange();
    for (std::size_t i = 0; i < alive_.size(); ++i) {
      process& p = *alive_[i];
      do_nccl(p);
      do_nccl(p);
      hand_over(p);
      over = over && p.end.has_value();
    }
    advance();
    check();
    if (over && alive_.empty()) break;
  }
  check_the_end();
  for (const auto& [id, ranks] : made_by_) tally_.communicators += ranks.size() == settings_.ranks ? 1 : 0;
}

void group_world::check_the_end() const {
  if (ends_.empty()) {
    must(may_fail_ || !paused_.empty(), "no rank has learned how the group ended");
    return;
  }
  const end_rank& first = ends_.front();
  for (const end_rank& one : ends_) {
    if (may_differ_ || paused_.size() > 1) break;
    must(one.how == first.how, "ranks end in different ways");
    must(one.cause == first.cause, "ranks report different causes");
  }
  if (settings_.odd || settings_.odd_data) {
    for (const end_rank& one : ends_)
      must(one.how != group_outcome::finished, "ranks that disagree have finished");
  }
  if (may_fail_) return;
  for (const end_rank& one : ends_) {
    if (one.how == group_outcome::failed && !paused_.empty()) {
      must(one.cause && paused_.contains(one.cause->rank),
           fmt::format("a rank that ran is blamed: {}", one.cause ? in_words(*one.cause) : "?"));
      ++tally_.blamed_for_pauses;
      continue;
    }
    must(one.how != group_outcome::failed,
         fmt::format("a group has failed that had no reason to: {}", one.cause ? one.cause->cause : "?"));
    if (!stopped_)
      must(one.how == group_outcome::finished, "a group has not finished although it was not stopped");
  }
}

}  // namespace penstock::testing
