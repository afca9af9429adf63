#include "tools/penstock/launch/launch_book.hpp"

#include "runtime/base/units.hpp"
#include "tools/penstock/output.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace penstock::cli {

namespace {

constexpr std::size_t earlier_kept = 64;  // earlier processes listed for each rank

supervision::hang_settings clocks_of(const launch_rules& rules) {
  return {.start_deadline = rules.start_deadline,
          .heartbeat_timeout = rules.lost_after,
          .item_timeout =
              rules.lost_after};  // a user's step may take any time: no rank ever counts as busy with an item
}

}  // namespace

std::string end_text(const process::exit_report& end) {
  using how = process::exit_report::how;
  if (end.ending == how::exited) return fmt::format("exit code {}", end.code);
  if (end.ending == how::signalled) return process::signal_name(end.code);
  return "it is gone, and its exit code is unknown";
}

launch_book::launch_book(const launch_rules& rules)
    : rules_(rules), ranks_(rules.ranks), hangs_(clocks_of(rules)), polls_(rules.ending.late_look) {
  for (std::uint32_t rank = 0; rank < rules.ranks; ++rank)
    lives_.push_back({.policy = {rules.restart_one.value_or(supervision::restart_settings{}), rank},
                      .ending = {rules.ending, steady_time{}}});
}

steady_time launch_book::next_deadline() const noexcept {
  steady_time next = never;
  for (std::uint32_t rank = 0; rank < rules_.ranks; ++rank) {
    if (lives(rank)) next = std::min(next, lives_[rank].ending.next_deadline());
    if (stage_ != stage::running) continue;
    next = std::min(next, ranks_[rank].restarts_at);
    if (looks_for_its_group(rank)) next = std::min(next, group_end_known_ + rules_.left_behind_after);
  }
  return next;
}

nanoseconds launch_book::tick() const noexcept {
  return clocks_of(rules_).tick();
}

bool launch_book::lives(std::uint32_t rank) const {
  return ranks_[rank].now == rank_state::starting || ranks_[rank].now == rank_state::running;
}

std::vector<launch_command> launch_book::advance(steady_time now) {
  postpone(group_end_known_, polls_.missed(now));
  if (stage_ == stage::begin) start_all(now);
  if (stage_ == stage::running) {
    kill_left_behind(now);
    start_those_due(now);
  }
  end_processes(now);
  if (stage_ != stage::over && all_gone()) settle_round(now);
  return std::exchange(outbox_, {});
}

void launch_book::start_all(steady_time now) {
  stage_ = stage::running;
  group_end_.reset();
  group_end_known_ = never;
  for (std::uint32_t rank = 0; rank < rules_.ranks; ++rank) start_one(rank, now);
}

void launch_book::start_one(std::uint32_t rank, steady_time now) {
  rank_facts& r = ranks_[rank];
  std::vector<ended_process> earlier = std::move(r.earlier);
  if (r.starts > 0) earlier.push_back({r.pid, std::move(r.end), r.code, r.signal, r.ended - r.began});
  if (earlier.size() > earlier_kept) earlier.erase(earlier.begin());
  const std::uint32_t starts = r.starts + 1;
  r = {};
  r.now = rank_state::starting;
  r.starts = starts;
  r.earlier = std::move(earlier);
  r.began = now;
  rank_life& l = lives_[rank];
  l = {.policy = std::move(l.policy), .ending = {rules_.ending, now}, .knows_end = group_end_.has_value()};
  l.ending.starting(now, rules_.start_deadline);
  hangs_.watch(rank, now);
  outbox_.emplace_back(start_rank{rank, group_end_ == launch_outcome::finished});
}

void launch_book::start_those_due(steady_time now) {
  for (std::uint32_t rank = 0; rank < rules_.ranks; ++rank) {
    if (ranks_[rank].restarts_at > now) continue;
    if (!lives_[rank].left_behind) ++single_restarts_;
    start_one(rank, now);
  }
}

bool launch_book::looks_for_its_group(std::uint32_t rank) const {
  const rank_life& l = lives_[rank];
  return restarts_single() && group_end_ && ranks_[rank].now == rank_state::running && !l.knows_end &&
         !l.traced && !l.ending.under_way();
}

void launch_book::kill_left_behind(steady_time now) {
  if (!group_end_ || now - group_end_known_ < rules_.left_behind_after) return;
  for (std::uint32_t rank = 0; rank < rules_.ranks; ++rank) {
    if (!looks_for_its_group(rank)) continue;
    lives_[rank].left_behind = true;
    lives_[rank].ending.kill(now);
  }
}

void launch_book::look(steady_time now, const std::vector<rank_sign>& signs, const std::string& start) {
  std::vector<supervision::child_sign> seen;
  for (std::uint32_t rank = 0; rank < rules_.ranks; ++rank) {
    if (ranks_[rank].now == rank_state::starting) lives_[rank].ending.start_waits_for(start);
  }
  for (const rank_sign& sign : signs) {
    rank_life& l = lives_[sign.rank];
    l.traced = sign.traced;
    if (!restarts_single() || ranks_[sign.rank].now != rank_state::running) continue;
    seen.push_back({.worker = sign.rank, .ready = l.spoke, .heartbeats = l.beats, .traced = sign.traced});
  }
  for (const supervision::hang_finding& v : hangs_.look(now, seen)) {
    if (stage_ != stage::running) continue;
    const auto sign = std::ranges::find(signs, v.worker, &rank_sign::rank);
    const bool in_start = v.kind == supervision::hang::start;
    lives_[v.worker].ending.hang(now, v.cause(),
                                 fmt::format("{} for {}{}{}", in_start ? "sent nothing" : "silent", duration_for_people(v.since),
                                             in_start ? " after its start" : "", supervision::place_of_wait(sign->wait_channel)));
  }
}

// ---- events -----------------------------------------------------------------------------------------------

void launch_book::started(std::uint32_t rank, pid_t pid) {
  rank_facts& r = ranks_[rank];
  r.now = rank_state::running;
  r.pid = pid;
  rank_life& l = lives_[rank];
  l.ending.started();
  // The rank was given up, or the round ended, while it was starting.
  if (l.ending.killed()) {
    outbox_.emplace_back(signal_rank{rank, SIGKILL});
  } else if (stage_ == stage::ending) {
    outbox_.emplace_back(signal_rank{rank, ending_with_});
  }
}

void launch_book::start_failed(std::uint32_t rank, std::string why, steady_time now) {
  rank_facts& r = ranks_[rank];
  if (r.now == rank_state::gone) return;  // the rank had already been given up
  r.now = rank_state::gone;
  r.pid = -1;
  r.ended = now;
  if (hung(rank)) why = lives_[rank].ending.reason();
  r.end = why;
  hangs_.forget(rank);
  if (restarts_single() && stage_ == stage::running)
    return lose(rank, std::move(why), lives_[rank].policy.start_failed(now), now);
  fail(rank, -1, std::move(why), now);
}

void launch_book::heard(std::uint32_t rank, std::uint64_t batches, std::uint64_t beats, steady_time now) {
  if (!restarts_single()) return;
  rank_life& l = lives_[rank];
  if (l.batches == 0 && batches > 0) l.policy.child_ready(now);
  l.batches = std::max(l.batches, batches);
  l.beats = std::max(l.beats, beats);
  l.spoke = true;
}

void launch_book::group_over(std::uint32_t rank, launch_outcome how, steady_time now) {
  if (!restarts_single() || how == launch_outcome::failed) return;  // a failed rank's exit code reports it
  lives_[rank].knows_end = true;
  if (group_end_) return;
  group_end_ = how;
  group_end_known_ = now;
  if (how == launch_outcome::stopped && stage_ == stage::running) forget_restarts(now);
}

bool launch_book::hung(std::uint32_t rank) const {
  const auto cause = lives_[rank].ending.cause();
  return cause == death_cause::hang || cause == death_cause::heartbeat;
}

void launch_book::exited(std::uint32_t rank, const process::exit_report& end, steady_time now,
                         oom_killer oom) {
  rank_facts& r = ranks_[rank];
  if (r.now == rank_state::gone) return;  // the rank had been given up and has now exited
  r.now = rank_state::gone;
  r.ended = now;
  r.end = hung(rank) ? lives_[rank].ending.reason() : end_text(end);
  hangs_.forget(rank);
  using how = process::exit_report::how;
  if (end.ending == how::exited) r.code = end.code;
  if (end.ending == how::signalled) r.signal = end.code;
  if (end.exited_with(0)) return;
  if (!restarts_single() || stage_ != stage::running) return fail(rank, r.pid, r.end, now);
  if (end.ending == how::exited && !hung(rank)) {
    // Only this rank was stopped; a group stops as a whole.
    if (end.code == exit_interrupted || end.code == exit_terminated) return stop(SIGTERM, false, now);
    return fail(rank, r.pid, r.end, now);
  }
  rank_life& l = lives_[rank];
  if (group_end_ == launch_outcome::stopped) return;  // the rank would have been stopped with the others
  if (l.left_behind) {
    r.end = "it missed the end of its group";
    r.now = rank_state::waiting;
    r.restarts_at = now;
    return;
  }
  if (oom == oom_killer::did_it) r.end += " by the kernel's OOM killer";
  const bool outside = l.ending.killed_from_outside(end) && oom == oom_killer::did_not;
  const supervision::death died{
      .ending = supervision::death::how::abnormal, .fruitful = l.batches > 0, .outside_kill = outside};
  lose(rank, r.end, l.policy.child_died(now, died), now);
}

void launch_book::lose(std::uint32_t rank, std::string how, const supervision::restart_decision& decided,
                       steady_time now) {
  using act = supervision::restart_decision::what;
  rank_facts& r = ranks_[rank];
  if (decided.act != act::restart) {
    return fail(rank, r.pid,
                fmt::format("{}; giving up: it ended {} times within {} without delivering a batch", how,
                            rules_.restart_one->intensity_max + 1,
                            duration_for_people(rules_.restart_one->intensity_within)),
                now);
  }
  r.now = rank_state::waiting;
  r.restarts_at = decided.at;
}

/// Ranks that wait for their restart will not start.
void launch_book::forget_restarts(steady_time now) {
  for (rank_facts& r : ranks_) {
    if (r.restarts_at == never) continue;
    r.restarts_at = never;
    r.now = rank_state::gone;
    r.ended = now;
  }
}

/// Only the first failure of a round is its cause: the other ranks fail because we end them, or because a
/// peer is missing.
void launch_book::fail(std::uint32_t rank, pid_t pid, std::string text, steady_time now) {
  if (stage_ != stage::running) return;
  cause_ = launch_cause{rank, pid, std::move(text)};
  end_round(SIGTERM, rules_.grace_after_failure, now);
}

void launch_book::stop(int signal, bool at_once, steady_time now) {
  if (stage_ == stage::over) return;
  const bool first = !std::exchange(stopped_, true);
  if (at_once) {
    end_round(SIGKILL, nanoseconds(0), now);
  } else if (first) {
    end_round(signal, rules_.grace_after_stop, now);
  }
}

// ---- the end of a round -----------------------------------------------------------------------------------

/// Sends each rank this signal, unless the round is already ending, and SIGKILL after `grace`. A second call
/// can only shorten that.
void launch_book::end_round(int signal, nanoseconds grace, steady_time now) {
  forget_restarts(now);
  const bool first = stage_ != stage::ending;
  stage_ = stage::ending;
  if (first) ending_with_ = signal;
  for (std::uint32_t rank = 0; rank < rules_.ranks; ++rank) {
    if (!lives(rank)) continue;
    if (first && signal != SIGKILL && ranks_[rank].now == rank_state::running)
      outbox_.emplace_back(signal_rank{rank, signal});
    lives_[rank].ending.stop(now, grace);
  }
}

void launch_book::end_processes(steady_time now) {
  for (std::uint32_t rank = 0; rank < rules_.ranks; ++rank) {
    if (!lives(rank)) continue;
    for (const supervision::termination_command& command : lives_[rank].ending.advance(now)) {
      if (const auto* signal = std::get_if<supervision::send_signal>(&command))
        outbox_.emplace_back(signal_rank{rank, signal->number});
      if (std::holds_alternative<supervision::survives_kill>(command)) write_off(rank, now);
    }
  }
}

/// The rank survives SIGKILL: only an uninterruptible system call takes this long.
void launch_book::write_off(std::uint32_t rank, steady_time now) {
  rank_facts& r = ranks_[rank];
  r.left_behind = true;
  r.end = hung(rank) ? lives_[rank].ending.reason() + "; it survived SIGKILL" : "it survived SIGKILL";
  r.now = rank_state::gone;
  r.ended = now;
  hangs_.forget(rank);
  fail(rank, r.pid, r.end, now);
  outbox_.emplace_back(leave_behind{rank});
}

bool launch_book::all_gone() const {
  return std::ranges::all_of(ranks_, [](const rank_facts& r) {
    return r.restarts_at == never && (r.now == rank_state::gone || r.now == rank_state::waiting);
  });
}

void launch_book::settle_round(steady_time now) {
  outbox_.emplace_back(clear_round{});
  const bool stuck = std::ranges::any_of(ranks_, &rank_facts::left_behind);
  if (cause_ && !stopped_ && !stuck && restarts_ < rules_.max_restarts) {
    ++restarts_;
    cause_.reset();
    return start_all(now);
  }
  stage_ = stage::over;
  outcome_ = cause_ ? launch_outcome::failed : stopped_ ? launch_outcome::stopped : launch_outcome::finished;
}

}  // namespace penstock::cli
