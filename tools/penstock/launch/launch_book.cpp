#include "tools/penstock/launch/launch_book.hpp"

#include "runtime/base/units.hpp"
#include "tools/penstock/output.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace penstock::cli {

std::string end_text(const process::exit_report& end) {
  using how = process::exit_report::how;
  if (end.ending == how::exited) return fmt::format("exit code {}", end.code);
  if (end.ending == how::signalled) return process::signal_name(end.code);
  return "it is gone, and its exit code is unknown";
}

launch_book::launch_book(const launch_rules& rules) : rules_(rules), ranks_(rules.ranks) {
  if (!rules.restart_one) return;
  for (std::uint32_t rank = 0; rank < rules.ranks; ++rank)
    lives_.push_back({supervision::restart_policy(*rules.restart_one, rank)});
}

steady_time launch_book::next_deadline() const noexcept {
  steady_time next = deadline_;
  if (stage_ != stage::running) return next;
  for (const rank_facts& r : ranks_) next = std::min(next, r.restarts_at);
  for (std::uint32_t rank = 0; rank < lives_.size(); ++rank) {
    const rank_life& l = lives_[rank];
    if (l.heard != never && !l.silenced) next = std::min(next, l.heard + rules_.lost_after);
    if (looks_for_its_group(rank)) next = std::min(next, group_end_known_ + rules_.left_behind_after);
  }
  return next;
}

std::vector<launch_command> launch_book::advance(steady_time now) {
  if (stage_ == stage::begin) start_all(now);
  if (stage_ == stage::running) {
    kill_silent(now);
    kill_left_behind(now);
    start_those_due(now);
  }
  enforce_deadline(now);
  if (stage_ != stage::over && all_gone()) settle_round(now);
  return std::exchange(outbox_, {});
}

void launch_book::start_all(steady_time now) {
  stage_ = stage::running;
  group_end_.reset();
  group_end_known_ = never;
  killed_ = false;
  deadline_ = never;
  for (std::uint32_t rank = 0; rank < rules_.ranks; ++rank) start_one(rank, now);
}

void launch_book::start_one(std::uint32_t rank, steady_time now) {
  rank_facts& r = ranks_[rank];
  const std::uint32_t starts = r.starts + 1;
  r = {};
  r.now = rank_state::starting;
  r.starts = starts;
  r.began = now;
  if (restarts_single()) {
    lives_[rank].batches = 0;
    lives_[rank].heard = never;
    lives_[rank].silenced = false;
    lives_[rank].left_behind = false;
    lives_[rank].knows_end = group_end_.has_value();
  }
  outbox_.emplace_back(start_rank{rank, group_end_ == launch_outcome::finished});
}

void launch_book::start_those_due(steady_time now) {
  for (std::uint32_t rank = 0; rank < rules_.ranks; ++rank) {
    if (ranks_[rank].restarts_at > now) continue;
    if (!lives_[rank].left_behind) ++single_restarts_;
    start_one(rank, now);
  }
}

void launch_book::kill_silent(steady_time now) {
  for (std::uint32_t rank = 0; rank < lives_.size(); ++rank) {
    rank_life& l = lives_[rank];
    if (ranks_[rank].now != rank_state::running || l.silenced || l.heard == never) continue;
    if (now - l.heard < rules_.lost_after) continue;
    l.silenced = true;
    outbox_.emplace_back(signal_rank{rank, SIGKILL});
  }
}

bool launch_book::looks_for_its_group(std::uint32_t rank) const {
  const rank_life& l = lives_[rank];
  return group_end_ && ranks_[rank].now == rank_state::running && !l.knows_end && !l.left_behind;
}

void launch_book::kill_left_behind(steady_time now) {
  if (!group_end_ || now - group_end_known_ < rules_.left_behind_after) return;
  for (std::uint32_t rank = 0; rank < lives_.size(); ++rank) {
    if (!looks_for_its_group(rank)) continue;
    lives_[rank].left_behind = true;
    outbox_.emplace_back(signal_rank{rank, SIGKILL});
  }
}

// ---- events -----------------------------------------------------------------------------------------------

void launch_book::started(std::uint32_t rank, pid_t pid) {
  rank_facts& r = ranks_[rank];
  r.now = rank_state::running;
  r.pid = pid;
  // The round ended while this rank was being started: send it the same signal as the others.
  if (stage_ == stage::ending) outbox_.emplace_back(signal_rank{rank, killed_ ? SIGKILL : ending_with_});
}

void launch_book::start_failed(std::uint32_t rank, std::string why, steady_time now) {
  rank_facts& r = ranks_[rank];
  r.now = rank_state::gone;
  r.pid = -1;
  r.ended = now;
  r.end = why;
  if (restarts_single() && stage_ == stage::running)
    return lose(rank, std::move(why), lives_[rank].policy.start_failed(now), now);
  fail(rank, -1, std::move(why), now);
}

void launch_book::heard(std::uint32_t rank, std::uint64_t batches, steady_time now) {
  if (!restarts_single()) return;
  rank_life& l = lives_[rank];
  if (l.batches == 0 && batches > 0) l.policy.child_ready(now);
  l.batches = std::max(l.batches, batches);
  l.heard = now;
}

void launch_book::group_over(std::uint32_t rank, launch_outcome how, steady_time now) {
  if (!restarts_single() || how == launch_outcome::failed) return;  // that is told by the exit code
  lives_[rank].knows_end = true;
  if (group_end_) return;
  group_end_ = how;
  group_end_known_ = now;
  if (how == launch_outcome::stopped && stage_ == stage::running) forget_restarts(now);
}

void launch_book::exited(std::uint32_t rank, const process::exit_report& end, steady_time now,
                         oom_killer oom) {
  rank_facts& r = ranks_[rank];
  if (r.now == rank_state::gone) return;  // it had been given up, and has now ended
  r.now = rank_state::gone;
  r.ended = now;
  r.end = end_text(end);
  if (restarts_single()) lives_[rank].heard = never;
  using how = process::exit_report::how;
  if (end.ending == how::exited) r.code = end.code;
  if (end.ending == how::signalled) r.signal = end.code;
  if (end.exited_with(0)) return;
  if (!restarts_single() || stage_ != stage::running) return fail(rank, r.pid, r.end, now);
  if (end.ending == how::exited) {
    // Somebody has stopped this rank alone; a group stops as one.
    if (end.code == exit_interrupted || end.code == exit_terminated) return stop(SIGTERM, false, now);
    return fail(rank, r.pid, r.end, now);
  }
  rank_life& l = lives_[rank];
  if (group_end_ == launch_outcome::stopped) return;  // it would have ended with the others
  if (l.left_behind) {
    r.end = "its group has finished, and it had not heard of that";
    r.now = rank_state::waiting;
    r.restarts_at = now;
    return;
  }
  if (l.silenced) r.end = fmt::format("silent for {}", duration_for_people(rules_.lost_after));
  if (oom == oom_killer::did_it) r.end += " by the kernel's OOM killer";
  const bool outside = r.signal == SIGKILL && !l.silenced && oom == oom_killer::did_not;
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
                fmt::format("{}; given up after {} ends without a batch within {}", how,
                            rules_.restart_one->intensity_max + 1,
                            duration_for_people(rules_.restart_one->intensity_within)),
                now);
  }
  r.now = rank_state::waiting;
  r.restarts_at = decided.at;
}

/// Ranks that wait for their restart are not started any more.
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
  forget_restarts(now);
  end_round(SIGTERM, now + rules_.grace_after_failure);
}

void launch_book::stop(int signal, bool at_once, steady_time now) {
  if (stage_ == stage::over) return;
  if (at_once) {
    stopped_ = true;
    forget_restarts(now);
    ending_with_ = signal;
    stage_ = stage::ending;
    deadline_ = now;
    killed_ = false;
    return;
  }
  if (std::exchange(stopped_, true)) return;
  forget_restarts(now);
  end_round(signal, now + rules_.grace_after_stop);
}

// ---- the end of a round -----------------------------------------------------------------------------------

void launch_book::end_round(int signal, steady_time kill_at) {
  if (stage_ != stage::ending) {
    ending_with_ = signal;
    signal_all(signal);
  }
  deadline_ = std::min(deadline_, kill_at);
  stage_ = stage::ending;
}

void launch_book::signal_all(int signal) {
  for (std::uint32_t rank = 0; rank < rules_.ranks; ++rank) {
    if (ranks_[rank].now == rank_state::running) outbox_.emplace_back(signal_rank{rank, signal});
  }
}

void launch_book::enforce_deadline(steady_time now) {
  if (stage_ != stage::ending || now < deadline_) return;
  if (!std::exchange(killed_, true)) {
    signal_all(SIGKILL);
    deadline_ = now + rules_.killing;
    return;
  }
  for (rank_facts& r : ranks_) {
    if (r.now == rank_state::gone) continue;
    r.left_behind = r.now == rank_state::running;
    r.end = "it survived SIGKILL";
    r.now = rank_state::gone;
    r.ended = now;
  }
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
  deadline_ = never;
  outcome_ = cause_ ? launch_outcome::failed : stopped_ ? launch_outcome::stopped : launch_outcome::finished;
}

}  // namespace penstock::cli
