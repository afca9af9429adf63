#include "tools/penstock/launch/launch_book.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace penstock::cli {

std::string end_in_words(const process::exit_report& end) {
  using how = process::exit_report::how;
  if (end.ending == how::exited) return fmt::format("exit code {}", end.code);
  if (end.ending == how::signalled) return process::signal_name(end.code);
  return "it is gone, and its exit code is unknown";
}

launch_book::launch_book(const launch_rules& rules) : rules_(rules), ranks_(rules.ranks) {}

std::vector<launch_command> launch_book::advance(steady_time now) {
  if (stage_ == stage::begin) start_all(now);
  enforce_deadline(now);
  if (stage_ != stage::over && all_gone()) settle_round(now);
  return std::exchange(outbox_, {});
}

void launch_book::start_all(steady_time now) {
  stage_ = stage::running;
  killed_ = false;
  deadline_ = never;
  for (std::uint32_t rank = 0; rank < rules_.ranks; ++rank) {
    rank_facts& r = ranks_[rank];
    const std::uint32_t starts = r.starts + 1;
    r = {};
    r.now = rank_state::starting;
    r.starts = starts;
    r.began = now;
    outbox_.emplace_back(start_rank{rank});
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
  r.ended = now;
  r.end = why;
  fail(rank, -1, std::move(why), now);
}

void launch_book::exited(std::uint32_t rank, const process::exit_report& end, steady_time now) {
  rank_facts& r = ranks_[rank];
  if (r.now == rank_state::gone) return;  // it had been given up, and has now ended
  r.now = rank_state::gone;
  r.ended = now;
  r.end = end_in_words(end);
  using how = process::exit_report::how;
  if (end.ending == how::exited) r.code = end.code;
  if (end.ending == how::signalled) r.signal = end.code;
  if (!end.exited_with(0)) fail(rank, r.pid, r.end, now);
}

/// Only the first failure of a round is its cause: the other ranks fail because we end them, or because a
/// peer is missing.
void launch_book::fail(std::uint32_t rank, pid_t pid, std::string text, steady_time now) {
  if (stage_ != stage::running) return;
  cause_ = launch_cause{rank, pid, std::move(text)};
  end_round(SIGTERM, now + rules_.grace_after_failure);
}

void launch_book::stop(int signal, bool at_once, steady_time now) {
  if (stage_ == stage::over) return;
  if (at_once) {
    stopped_ = true;
    ending_with_ = signal;
    stage_ = stage::ending;
    deadline_ = now;
    killed_ = false;
    return;
  }
  if (std::exchange(stopped_, true)) return;
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
  return std::ranges::all_of(
      ranks_, [](const rank_facts& r) { return r.now == rank_state::gone || r.now == rank_state::waiting; });
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
