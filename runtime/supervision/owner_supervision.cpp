#include "runtime/supervision/owner_supervision.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/exit_codes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace penstock::supervision {
namespace {

/// The number of the GPU owner in its hang detector, which watches no other child.
constexpr std::uint32_t the_owner = 0;

bool is_fault(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT || signal == SIGILL || signal == SIGFPE ||
         signal == SIGSYS || signal == SIGTRAP;
}

std::string how_it_ended(const process::exit_report& end) {
  switch (end.ending) {
    case process::exit_report::how::signalled: return "was ended by " + process::signal_name(end.code);
    case process::exit_report::how::exited: return fmt::format("ended with exit code {}", end.code);
    case process::exit_report::how::unknown: break;
  }
  return "ended, but its exit code is unknown, because another part of this program reaped it (is SIGCHLD "
         "ignored?)";
}

}  // namespace

child_state state_of(owner_stage stage) noexcept {
  switch (stage) {
    case owner_stage::idle: return child_state::idle;
    case owner_stage::starting:
    case owner_stage::introduced: return child_state::starting;
    case owner_stage::ready: return child_state::ready;
    case owner_stage::backoff: return child_state::backoff;
    case owner_stage::stopping: return child_state::stopping;
    case owner_stage::stopped: return child_state::stopped;
    case owner_stage::failed: break;
  }
  return child_state::failed;
}

owner_supervision::owner_supervision(const owner_settings& settings, steady_time now)
    : settings_(settings),
      policy_(settings.restart, settings.seed),
      hangs_(settings.clocks),
      ending_(settings.ending, now),
      polls_(settings.ending.late_look, now) {}

// ---- starting ---------------------------------------------------------------------------------------------

void owner_supervision::open(steady_time now) {
  if (stage_ == owner_stage::idle) start(now);
}

void owner_supervision::start(steady_time now) {
  look_at_clock(now);
  ++incarnation_;
  stage_ = owner_stage::starting;
  start_due_ = never;
  current_ = {};
  current_.started_at = now;
  ending_ = termination(settings_.ending, now);
  ending_.starting(now, settings_.clocks.start_deadline);
  if (close_by_ != never) ending_.stop(now, std::max<nanoseconds>(close_by_ - now, nanoseconds(0)));
  hangs_.watch(the_owner, now);
  outbox_.emplace_back(start_owner_process{incarnation_});
}

void owner_supervision::started(std::uint32_t incarnation, pid_t pid) {
  if (incarnation != incarnation_) return;
  current_.pid = pid;
  ending_.started();
}

void owner_supervision::start_failed(std::uint32_t incarnation, steady_time now, failure why) {
  if (incarnation != incarnation_ || is_over()) return;
  hangs_.forget(the_owner);
  // Retrying helps when the process table is full, but not when the program is missing or cannot be executed.
  if (why.code == errc::worker_program) return fail(why);
  why = ending_.why_not_started(std::move(why));
  const restart_decision next = policy_.start_failed(now);
  if (next.act == restart_decision::what::restart)
    outbox_.emplace_back(owner_not_started{why, next.at - now});
  restart_or_fail(
      now, next,
      {why.code, fmt::format("{}; all the retries that [gpu.restart] allows have failed", why.message),
       why.os_code});
}

bool owner_supervision::heeded(std::uint32_t incarnation) const {
  return incarnation == incarnation_ && current_.pid && !is_over() && !ending_.fenced();
}

void owner_supervision::greeted(std::uint32_t incarnation, steady_time now, const std::string& refusal) {
  if (!heeded(incarnation)) return;
  if (!refusal.empty()) {
    const pid_t pid = *current_.pid;
    violate(now, refusal);
    return fail({errc::protocol,
                 fmt::format("refused the GPU owner's program (pid {}): {}; install the same version of "
                             "penstock-gpu and of the session's program",
                             pid, refusal),
                 0});
  }
  if (stage_ != owner_stage::starting) return violate(now, "it sent hello twice");
  stage_ = owner_stage::introduced;
  outbox_.emplace_back(introduce_owner{incarnation_});
}

void owner_supervision::opened(std::uint32_t incarnation, steady_time now) {
  if (!heeded(incarnation) || stage_ == owner_stage::stopping) return;
  if (stage_ != owner_stage::introduced) return violate(now, "it reported an open device at the wrong time");
  stage_ = owner_stage::ready;
  policy_.child_ready(now);
  outbox_.emplace_back(owner_is_ready{!std::exchange(known_, true)});
  if (finishing_) say_stop(now);
}

// ---- its messages -----------------------------------------------------------------------------------------

void owner_supervision::violate(steady_time now, const std::string& reason) {
  current_.gave_up.reset();
  ending_.violate(now, reason);
}

void owner_supervision::gave_up(std::uint32_t incarnation, steady_time now, failure why) {
  if (!heeded(incarnation)) return;
  if (current_.gave_up) return violate(now, "it gave up twice");
  current_.gave_up = std::move(why);
}

void owner_supervision::cannot_be_replaced(std::uint32_t incarnation) {
  if (heeded(incarnation)) irreplaceable_ = true;
}

bool owner_supervision::copied(std::uint32_t incarnation, steady_time now, std::uint64_t upload) {
  if (!heeded(incarnation)) return false;
  if (const auto wrong = orders_.copied(upload)) {
    violate(now, *wrong);
    return false;
  }
  if (const auto died = std::exchange(not_recovered_, std::nullopt))
    outbox_.emplace_back(owner_recovered{died->first, now - died->second});
  return true;
}

bool owner_supervision::delivered(std::uint32_t incarnation, steady_time now, std::uint64_t upload) {
  if (!heeded(incarnation)) return false;
  if (const auto wrong = orders_.delivered(upload)) {
    violate(now, *wrong);
    return false;
  }
  current_.fruitful = true;
  return true;
}

void owner_supervision::link_closed(std::uint32_t incarnation, steady_time now, const std::string& reason) {
  if (!heeded(incarnation)) return;
  if (reason.empty()) return ending_.link_closed(now);
  violate(now, reason);
}

void owner_supervision::look(steady_time now, const owner_sign& sign) {
  current_.wait_channel = sign.wait_channel;
  if (being_started()) ending_.start_waits_for(sign.wait_channel);
  if (!current_.pid || is_over() || stage_ == owner_stage::stopping) return;  // a stopping process has its own deadline
  const child_sign seen{the_owner,      stage_ == owner_stage::ready, sign.heartbeats,
                        sign.work_mark, sign.in_hand.has_value(),     sign.traced};
  for (const hang_finding& v : hangs_.look(now, {seen})) {
    const upload_order* batch = sign.in_hand ? orders_.find_by_mark(*sign.in_hand) : nullptr;
    const std::string work = fmt::format("its {} has been working on {}", batch != nullptr && batch->job ? "device program" : "sink",
                                         batch != nullptr ? describe(*batch) : "a batch");
    ending_.hang(now, v.cause(), v.reason(work, sign.wait_channel));
  }
}

// ---- its end ----------------------------------------------------------------------------------------------

/// Postpones close_by_ by the time that the session did not run: while there is no process,
/// `ending_` cannot do this.
void owner_supervision::look_at_clock(steady_time now) {
  postpone(close_by_, polls_.missed(now));
}

void owner_supervision::say_stop(steady_time now) {
  look_at_clock(now);
  stage_ = owner_stage::stopping;
  outbox_.emplace_back(stop_owner_process{whole_});
  ending_.stop(now, std::max<nanoseconds>(close_by_ - now, nanoseconds(0)));
}

void owner_supervision::close(steady_time now, bool whole, nanoseconds patience) {
  if (stage_ == owner_stage::stopped) return;
  look_at_clock(now);
  close_by_ = std::min(close_by_, now + patience);
  if (stage_ == owner_stage::stopping) return ending_.stop(now, patience);  // the new deadline may be earlier
  whole_ = whole;
  if (current_.pid && hears()) return say_stop(now);
  // There is no process that can be asked to stop. If the stream is complete, wait until the process
  // that is starting has let its sink finish. Otherwise there is nothing to wait for, and that
  // process ends with the session.
  finishing_ = whole && stage_ != owner_stage::failed;
  if (finishing_) return;
  stage_ = owner_stage::stopped;
  outbox_.emplace_back(owner_closed{});
}

void owner_supervision::restart(steady_time now) {
  if (stage_ == owner_stage::backoff) {
    policy_.reset();
    return start(now);
  }
  if (!current_.pid || !hears()) return;
  current_.operated = true;
  policy_.reset();
  ending_.kill(now);
}

void owner_supervision::fail(failure why) {
  if (is_over()) return;
  stage_ = owner_stage::failed;
  outbox_.emplace_back(owner_failed{std::move(why)});
  if (finishing_) outbox_.emplace_back(owner_closed{});
}

suspicion_rule owner_supervision::suspicion_after(const process::exit_report& end) const {
  if (current_.operated) return suspicion_rule::none;
  if (end.exited_with(exit_codes::poisoned)) return suspicion_rule::in_hand_or_oldest;
  const bool fault = end.ending == process::exit_report::how::signalled && is_fault(end.code);
  return fault || ending_.cause() == death_cause::hang ? suspicion_rule::in_hand : suspicion_rule::none;
}

owner_death_report owner_supervision::report_of(const owner_end& end,
                                                const std::optional<upload_order>& had,
                                                steady_time now) const {
  owner_death_report d;
  d.pid = current_.pid.value_or(0);
  d.incarnation = incarnation_;
  // If a process was asked to finish but exited before its sink had finished, its death counts as its own.
  const bool own_end = ending_.cause() == death_cause::stopped && !ending_.killed_here(end.report);
  d.cause = own_end ? termination::own_cause_of(end.report) : ending_.cause_of(end.report);
  if (end.oom_killed) d.cause = death_cause::oom;
  if (end.report.ending == process::exit_report::how::signalled)
    d.signal = process::signal_name(end.report.code);
  if (end.report.ending == process::exit_report::how::exited) d.code = end.report.code;
  if (had && !had->job) {
    d.epoch = had->epoch;
    d.sequence = had->sequence;
  }
  if (const auto ignored = ending_.ignored_stop(end.report))
    d.ignored_stop_seconds = std::chrono::duration<double>(*ignored).count();
  d.reason = end.oom_killed ? std::string() : ending_.fault(end.report);
  if (d.cause == death_cause::signal) d.reason = ending_.why_signalled(end.report, {end.injected, 0, end.oom_is_counted});
  d.last_words = current_.gave_up ? current_.gave_up->message : end.last_lines;
  d.time = end.report.noticed;
  d.lived_seconds = std::chrono::duration<double>(now - current_.started_at).count();
  return d;
}

std::optional<failure> owner_supervision::why_no_other_helps(const owner_end& end) const {
  if (end.report.exited_with(exit_codes::hardware)) {
    return failure{
        errc::device_hardware,
        fmt::format("the GPU reports broken hardware: {}", current_.gave_up ? current_.gave_up->message : end.last_lines), 0};
  }
  if (current_.gave_up && (current_.gave_up->code != errc::device_poisoned || !settings_.cures_poison)) return current_.gave_up;
  if (irreplaceable_) {
    return failure{
        errc::sink,
        fmt::format("the GPU owner's process (pid {}) died and took the device program's state "
                    "with it: the program provides no snapshots (implement snapshot() and restore())",
                    current_.pid.value_or(0)),
        0};
  }
  // A process that an operator was replacing when the stream ended had no time for its sink. The next
  // process lets the sink finish.
  if (finishing_ && !current_.operated && ending_.killed_here(end.report)) {
    return failure{errc::sink,
                   fmt::format("the sink did not finish in time: the GPU owner (pid {}) was killed", current_.pid.value_or(0)),
                   0};
  }
  return std::nullopt;
}

/// A batch that has killed two owners fails the run or is skipped.
std::optional<uploads_lost::poison> owner_supervision::decide(const owner_orders::loss& loss) {
  const std::string what =
      fmt::format("{} has killed {} GPU owners{}", describe(*loss.suspect), owner_orders::deaths_that_prove,
                  current_.gave_up ? fmt::format("; the last one reported: {}", current_.gave_up->message) : "");
  if (settings_.on_poison == poison_rule::fail) {
    fail({errc::device_poisoned, what + "; [gpu] on_poison_batch = \"skip\" would skip it", 0});
    return std::nullopt;
  }
  outbox_.emplace_back(owner_left_out{what + "; skipping it"});
  return uploads_lost::poison{
      loss.suspect->position,
      fmt::format("its batch ({} of epoch {}) has killed {} GPU owners", loss.suspect->sequence,
                  loss.suspect->epoch, owner_orders::deaths_that_prove)};
}

/// Whether an operator ended the process, or it exited because a group's communicator is lost. Neither
/// is a fault of the process.
bool owner_supervision::makes_room(const owner_end& end) const {
  return current_.operated || end.report.exited_with(exit_codes::temporary);
}

/// Whether the process reported a mistake in the configuration, or a refusal of the system (a full disk), and
/// exited. This is an error, not a death.
bool owner_supervision::refused_to_work(const owner_end& end) const {
  return current_.gave_up && (end.report.exited_with(exit_codes::configuration) || end.report.exited_with(exit_codes::failed));
}

void owner_supervision::exited(std::uint32_t incarnation, steady_time now, const owner_end& end) {
  if (incarnation != incarnation_ || !current_.pid) return;
  hangs_.forget(the_owner);
  if (is_over()) return current_.pid.reset();
  not_recovered_.reset();  // uploads never resumed after the previous death, so no recovery is reported
  if (stage_ == owner_stage::stopping && (end.report.exited_with(0) || !whole_)) {
    if (const auto ignored = ending_.ignored_stop(end.report)) {
      outbox_.emplace_back(
          owner_died{report_of(end, std::nullopt, now), std::nullopt, *ignored >= hurried_stop});
    }
    current_.pid.reset();
    stage_ = owner_stage::stopped;
    outbox_.emplace_back(owner_closed{});
    return;
  }
  finishing_ = finishing_ || stage_ == owner_stage::stopping;
  const owner_orders::loss loss = orders_.lose_owner(suspicion_after(end.report), end.in_hand);
  if (!refused_to_work(end)) outbox_.emplace_back(owner_died{report_of(end, loss.suspect ? loss.suspect : loss.had, now),
                                  loss.suspect ? std::optional(describe(*loss.suspect)) : std::nullopt,
                                  !makes_room(end)});
  const auto hopeless = why_no_other_helps(end);
  const pid_t pid = *std::exchange(current_.pid, std::nullopt);
  if (hopeless) return fail(*hopeless);
  settle_death(now, end, loss, pid);
}

void owner_supervision::settle_death(steady_time now, const owner_end& end, const owner_orders::loss& loss,
                                     pid_t pid) {
  std::optional<uploads_lost::poison> left_out;
  if (loss.proven) left_out = decide(loss);
  if (is_over()) return;
  not_recovered_ = std::pair(incarnation_, now);
  const std::string words = current_.gave_up ? current_.gave_up->message : end.last_lines;
  std::optional<uploads_lost::blame> blamed;
  if (loss.suspect) {
    std::string cause = fmt::format("the GPU owner (pid {}) {}", pid, how_it_ended(end.report));
    if (ending_.cause() == death_cause::hang) cause += ": " + ending_.reason();
    if (!words.empty()) cause += ": " + words;
    blamed = uploads_lost::blame{loss.suspect->position, std::move(cause)};
  }
  outbox_.emplace_back(uploads_lost{loss.era, std::move(left_out), std::move(blamed)});

  death d;
  const bool permanent = end.report.is_permanent();
  if (permanent) d.ending = death::how::no_restart;
  if (makes_room(end)) d.ending = death::how::operated;
  d.fruitful = current_.fruitful;
  d.outside_kill = ending_.killed_from_outside(end.report) && !end.oom_killed;
  const std::string why =
      permanent ? std::string("; restarting would not help")
                : fmt::format(", after {} without a batch in between; [gpu.restart] allows no more",
                              counted(restarts_, "restart"));
  restart_or_fail(now, policy_.child_died(now, d),
                  {errc::device_unavailable,
                   fmt::format("the GPU owner (pid {}) {}{}{}{}", pid, how_it_ended(end.report), why,
                               words.empty() ? "" : ": ", words),
                   0});
}

void owner_supervision::restart_or_fail(steady_time now, const restart_decision& next, failure if_not) {
  if (next.act != restart_decision::what::restart) {
    not_recovered_.reset();
    return fail(std::move(if_not));
  }
  ++restarts_;
  if (next.at <= now) return start(now);
  stage_ = owner_stage::backoff;
  start_due_ = next.at;
}

// ---- commands ---------------------------------------------------------------------------------------------

std::vector<owner_command> owner_supervision::advance(steady_time now) {
  look_at_clock(now);
  if (finishing_ && !current_.pid && close_by_ <= now) {
    fail({errc::sink,
          fmt::format("the sink did not finish in time: {} ended first", counted(restarts_, "GPU owner")),
          0});
  }
  if (stage_ == owner_stage::backoff && start_due_ <= now) start(now);
  if (hears() && orders_.has_unsent()) outbox_.emplace_back(send_uploads{orders_.take_unsent()});
  if (current_.pid || being_started()) end_process(now);
  return std::exchange(outbox_, {});
}

void owner_supervision::end_process(steady_time now) {
  for (const termination_command& c : ending_.advance(now)) {
    if (const auto* killing = std::get_if<killing_begins>(&c)) outbox_.emplace_back(*killing);
    if (const auto* signal = std::get_if<send_signal>(&c)) outbox_.emplace_back(*signal);
    if (!std::holds_alternative<survives_kill>(c)) continue;
    if (!current_.pid) {
      fail({errc::device_unavailable, "the GPU owner could not be started: " + ending_.reason(), 0});
      continue;
    }
    fail({errc::device_unavailable,
          fmt::format("the GPU owner (pid {}) survives SIGKILL: it waits in the kernel ({}), and its device "
                      "memory is still allocated",
                      *current_.pid, current_.wait_channel),
          0});
  }
}

steady_time owner_supervision::next_deadline() const {
  if (is_over()) return never;
  if (being_started()) return std::min(ending_.next_deadline(), finishing_ ? close_by_ : never);
  return current_.pid ? ending_.next_deadline() : std::min(start_due_, finishing_ ? close_by_ : never);
}

}  // namespace penstock::supervision
