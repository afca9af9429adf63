#include "runtime/supervision/termination.hpp"

#include "runtime/base/death_words.hpp"
#include "runtime/base/units.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace penstock::supervision {

namespace {

/// Signals that are only ever sent: no fault of a program raises them.
constexpr std::array only_sent{SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM, SIGUSR1, SIGUSR2};

}  // namespace

void termination::begin(death_cause why, std::string reason) {
  // If a child was asked to finish and then hangs or violates the protocol, it is
  // killed for the new reason.
  const bool harmless = !cause_ || *cause_ == death_cause::stopped || *cause_ == death_cause::memory;
  if (!harmless) return;
  cause_ = why;
  reason_ = std::move(reason);
}

void termination::kill_by(steady_time when) {
  if (!killed_) kill_at_ = std::min(kill_at_, when);
}

/// Time without a poll does not count against the child.
void termination::look(steady_time now) {
  const nanoseconds missed = polls_.missed(now);
  for (steady_time* deadline : {&start_by_, &kill_at_, &stop_asked_, &stop_by_, &write_off_at_}) postpone(*deadline, missed);
}

void termination::starting(steady_time now, nanoseconds deadline) {
  start_deadline_ = deadline;
  start_by_ = now + deadline;
}

failure termination::why_not_started(failure why) const {
  if (cause_ == death_cause::hang) why.message = reason_;
  return why;
}

void termination::retire(death_cause why, std::string reason) {
  if (!cause_) begin(why, std::move(reason));
  else if (cause_ == why && !reason.empty()) reason_ = std::move(reason);
}

void termination::stop(steady_time now, nanoseconds patience) {
  look(now);
  asked_ = true;
  retire(death_cause::stopped);
  stop_asked_ = std::min(stop_asked_, now);
  stop_by_ = std::min(stop_by_, now + patience);
  kill_by(now + patience);
}

void termination::hang(steady_time now, death_cause why, std::string reason) {
  look(now);
  if (under_way()) return;
  begin(why, std::move(reason));
  announced_ = true;
  hung_at_ = now;
  outbox_.emplace_back(killing_begins{*cause_, reason_});
  outbox_.emplace_back(send_signal{SIGABRT});
  outbox_.emplace_back(send_signal{SIGCONT});
  kill_by(now + settings_.after_abort);
}

void termination::violate(steady_time now, std::string reason) {
  look(now);
  if (std::exchange(fenced_, true)) return;
  if (!under_way()) begin(death_cause::protocol, std::move(reason));
  kill_by(now);
}

void termination::kill(steady_time now) {
  look(now);
  if (!under_way()) begin(death_cause::stopped, {});
  asked_ = true;
  kill_by(now);
}

void termination::kill(steady_time now, death_cause why, std::string reason) {
  look(now);
  if (under_way()) return;
  begin(why, std::move(reason));
  kill_by(now);
}

void termination::link_closed(steady_time now) {
  look(now);
  if (std::exchange(left_its_link_, true)) return;
  kill_by(now + settings_.after_closed_link);
}

void termination::oom_killed(const process::exit_report& end) {
  if (killed_from_outside(end)) retire(death_cause::oom);
  if (killed_here(end) && left_its_link_ && !fenced_ && cause_ == death_cause::protocol)
    cause_ = death_cause::oom;
}

std::vector<termination_command> termination::advance(steady_time now) {
  look(now);
  if (start_by_ <= now) {
    start_by_ = never;
    kill(now, death_cause::hang,
         fmt::format("{} has not returned for {}: its file system is not responding",
                     start_waits_for_.empty() ? "its start" : start_waits_for_,
                     duration_for_people(start_deadline_)));
  }
  if (kill_at_ <= now) {
    kill_at_ = never;
    killed_ = true;
    write_off_at_ = now + settings_.after_kill;
    if (!cause_ && left_its_link_) {
      begin(death_cause::protocol, "it closed its link but did not exit");
      // Probably it is slowly dying of another cause, which the report of its death will state.
      announced_ = true;
    }
    if (!cause_) cause_ = death_cause::stopped;
    if (reason_.empty()) reason_ = asked_ ? "it did not end in time" : "it was asked to exit";
    const bool fault = cause_ != death_cause::stopped && cause_ != death_cause::memory;
    if (!fault && stop_by_ <= now) ignored_stop_ = now - stop_asked_;
    if (fault && !std::exchange(announced_, true)) outbox_.emplace_back(killing_begins{*cause_, reason_});
    outbox_.emplace_back(send_signal{SIGKILL});
  }
  if (write_off_at_ <= now) {
    write_off_at_ = never;
    written_off_ = true;
    outbox_.emplace_back(survives_kill{});
  }
  return std::exchange(outbox_, {});
}

steady_time termination::next_deadline() const {
  return std::min({start_by_, kill_at_, write_off_at_});
}

bool termination::only_left_its_link(const process::exit_report& end) const {
  return left_its_link_ && !fenced_ && cause_ == death_cause::protocol && !end.ended_by(SIGKILL);
}

death_cause termination::cause_of(const process::exit_report& end) const {
  return cause_ && !only_left_its_link(end) ? *cause_ : own_cause_of(end);
}

death_cause termination::own_cause_of(const process::exit_report& end) noexcept {
  switch (end.ending) {
    case process::exit_report::how::signalled: return death_cause::signal;
    case process::exit_report::how::exited: return death_cause::exit;
    case process::exit_report::how::unknown: break;
  }
  return death_cause::unknown;
}

std::string termination::cause_text(const process::exit_report& end) const {
  const death_cause cause = cause_of(end);
  if (cause != death_cause::stopped && cause != death_cause::signal && cause != death_cause::exit)
    return name_of(cause);
  switch (end.ending) {
    case process::exit_report::how::signalled: return process::signal_name(end.code);
    case process::exit_report::how::exited: return fmt::format("exit {}", end.code);
    case process::exit_report::how::unknown: break;
  }
  return "unknown";
}

std::string termination::fault(const process::exit_report& end) const {
  const bool has_reason = cause_ && (is_unexpected(*cause_) || cause_ == death_cause::memory) && cause_ != death_cause::oom;
  return has_reason && cause_ == cause_of(end) ? reason_ : std::string();
}

bool termination::killed_from_outside(const process::exit_report& end) const {
  return end.ended_by(SIGKILL) && !killed_here(end);
}

std::string termination::why_signalled(const process::exit_report& end, const signal_evidence& evidence) const {
  if (cause_of(end) != death_cause::signal || killed_here(end)) return {};
  if (evidence.injected) return text_of_injected_signal;
  if (evidence.sender > 0) return fmt::format("sent by process {}", evidence.sender);
  if (std::ranges::find(only_sent, end.code) == only_sent.end()) return {};
  if (!end.ended_by(SIGKILL)) return reason_of_sent_signal("");
  return reason_of_sent_signal(evidence.oom_is_counted ? "no OOM kill was counted" : "OOM kills are not counted here");
}

std::optional<nanoseconds> termination::ignored_stop(const process::exit_report& end) const {
  return killed_here(end) && ignored_stop_ > nanoseconds(0) ? std::optional(ignored_stop_) : std::nullopt;
}

bool termination::left_as_told(const process::exit_report& end) const {
  const bool told = cause_ == death_cause::stopped || cause_ == death_cause::memory;
  return told && (end.ending == process::exit_report::how::exited || end.ended_by(SIGKILL));
}

}  // namespace penstock::supervision
