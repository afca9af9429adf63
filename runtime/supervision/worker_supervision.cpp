#include "runtime/supervision/worker_supervision.hpp"

#include "runtime/base/exit_codes.hpp"
#include "runtime/base/units.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace penstock::supervision {

worker_supervision::worker_supervision(const worker_rules& rules)
    : rules_(rules), pool_(rules.pool), hangs_(rules.clocks), polls_(rules.ending.late_look) {}

worker_supervision::child* worker_supervision::living(worker_ref who) {
  const auto it = children_.find(who.worker);
  return it != children_.end() && it->second.who == who && !it->second.ended ? &it->second : nullptr;
}

const worker_supervision::child* worker_supervision::find(worker_ref who) const {
  const auto it = children_.find(who.worker);
  return it != children_.end() && it->second.who == who ? &it->second : nullptr;
}

const termination* worker_supervision::ending_of(worker_ref who) const {
  const child* c = find(who);
  return c == nullptr ? nullptr : &c->ending;
}

bool worker_supervision::may_recycle(worker_ref who) const {
  const child* c = find(who);
  return c != nullptr && !c->ended && c->at == stage::ready && !c->draining;
}

bool worker_supervision::audits_gpu_use(worker_ref who) const {
  const child* c = find(who);
  return rules_.exclusive != exclusive_rule::off && c != nullptr && !c->ended && !c->ending.under_way();
}

// ---- the session ------------------------------------------------------------------------------------------

void worker_supervision::open(steady_time now) {
  pool_.open(now);
}

void worker_supervision::close(steady_time now, nanoseconds patience) {
  closing_ = true;
  pool_.close();
  for (auto& [place, c] : children_) {
    if (c.ended) continue;
    c.ending.stop(now, patience);
    if (c.pid) outbox_.emplace_back(stop_worker{c.who});
  }
}

void worker_supervision::restart(std::uint32_t worker, steady_time now, bool at_once) {
  pool_.restart(worker, now);
  if (const auto it = children_.find(worker); at_once && it != children_.end() && !it->second.ended) it->second.ending.kill(now);
}

void worker_supervision::host_left(std::uint32_t worker, bool lost) {
  pool_.host_left(worker);
  const auto it = children_.find(worker);
  if (!lost || it == children_.end() || it->second.ended) return;
  it->second.ending.retire(death_cause::host);
}

// ---- introductions ----------------------------------------------------------------------------------------

void worker_supervision::started(worker_ref who, pid_t pid) {
  child* c = living(who);
  if (c == nullptr) return;
  c->pid = pid;
  c->ending.started();
  if (closing_) outbox_.emplace_back(stop_worker{who});
}

void worker_supervision::start_refused(worker_ref who, steady_time now, const failure& why) {
  const child* c = living(who);
  if (c == nullptr) return;
  const failure reason = c->ending.why_not_started(why);
  hangs_.forget(who.worker);
  children_.erase(who.worker);
  pool_.start_failed(who, now, reason);
}

void worker_supervision::greeted(worker_ref who, steady_time now, const std::string& refusal) {
  child* c = living(who);
  if (c == nullptr) return;
  if (!refusal.empty()) {
    c->ending.violate(now, refusal);
    outbox_.emplace_back(workers_failed{
        {errc::protocol,
         fmt::format(
             "refused worker {}: {}; install the same version of the worker's and of the session's program",
             who.worker, refusal),
         0}});
    return;
  }
  if (c->at != stage::started) return c->ending.violate(now, "it sent hello twice");
  c->at = stage::introduced;
  outbox_.emplace_back(introduce_worker{who});
}

bool worker_supervision::described(worker_ref who, steady_time now) {
  child* c = living(who);
  if (c == nullptr || c->ending.fenced()) return false;
  if (c->at != stage::introduced) {
    c->ending.violate(now, "it sent its description at the wrong time");
    return false;
  }
  c->at = stage::described;
  return true;
}

bool worker_supervision::prepared(worker_ref who, steady_time now, bool has_memory) {
  child* c = living(who);
  if (c == nullptr || c->at != stage::described) return false;
  if (has_memory) {
    c->at = stage::assigned;
  } else {
    c->ending.kill(now);  // the run has failed for another reason, so the worker is not needed
  }
  return has_memory;
}

void worker_supervision::ready(worker_ref who, steady_time now) {
  child* c = living(who);
  if (c == nullptr || c->ending.fenced()) return;
  if (c->at != stage::assigned) return c->ending.violate(now, "it reported ready at the wrong time");
  c->at = stage::ready;
  pool_.child_ready(who, now);
  outbox_.emplace_back(hand_over_worker{who, c->sacrificial});
  if (c->draining) outbox_.emplace_back(retire_worker{who, false});
}

void worker_supervision::gave_up(worker_ref who, steady_time now, failure why) {
  child* c = living(who);
  if (c == nullptr || c->ending.fenced()) return;
  if (c->gave_up) return c->ending.violate(now, "it gave up twice");
  c->gave_up = std::move(why);
}

void worker_supervision::out_of_turn(worker_ref who, steady_time now, std::string_view message) {
  fence(who, now, fmt::format("it sent {} at the wrong time", message));
}

void worker_supervision::link_closed(worker_ref who, steady_time now, const std::string& reason) {
  child* c = living(who);
  if (c == nullptr) return;
  if (reason.empty()) return c->ending.link_closed(now);
  c->ending.violate(now, reason);
}

void worker_supervision::cancel(worker_ref who, steady_time now, bool at_once, const std::string& reason) {
  child* c = living(who);
  if (c == nullptr) return;
  c->ending.hang(now, death_cause::cancelled, reason);
  if (at_once) c->ending.kill(now);
}

void worker_supervision::fence(worker_ref who, steady_time now, const std::string& reason) {
  if (child* c = living(who)) c->ending.violate(now, reason);
}

// ---- ends -------------------------------------------------------------------------------------------------

void worker_supervision::retire(child& c, steady_time now) {
  c.draining = true;
  c.ending.retire(death_cause::stopped);
  if (c.at != stage::ready) return c.ending.kill(now);  // the worker holds no leases yet
  // A worker over its memory limit gives up its other leases but finishes the current
  // batch. Otherwise a batch that needs more than the limit would never be loaded.
  outbox_.emplace_back(retire_worker{c.who, c.ending.cause() == death_cause::memory});
}

void worker_supervision::told_to_stop(worker_ref who, steady_time now) {
  if (child* c = living(who)) c->ending.stop(now, rules_.leave_deadline);
}

void worker_supervision::exited(worker_ref who, steady_time now, const process::exit_report& end,
                                bool oom_killed) {
  child* c = living(who);
  if (c == nullptr) return;
  static_cast<void>(now);
  c->ended = end;
  hangs_.forget(who.worker);
  if (oom_killed) c->ending.oom_killed(end);
  c->cause = c->ending.cause_text(end);
  outbox_.emplace_back(
      decide_blame{who, c->cause, !c->ending.left_as_told(end), c->ending.cause_of(end) == death_cause::host,
                   c->ending.cause_of(end) == death_cause::hang});
}

death worker_supervision::death_of(const child& c, bool blamed, std::uint64_t samples_done) {
  death d;
  if (c.ended->exited_with(exit_codes::finished)) d.ending = death::how::normal;
  if (c.ended->is_permanent()) d.ending = death::how::no_restart;
  if (const auto cause = c.ending.cause(); cause && !is_unexpected(*cause)) d.ending = death::how::operated;
  d.blamed = blamed;
  // A worker that has violated the protocol would do so again, no matter how much work it completed before.
  d.fruitful = c.at == stage::ready && samples_done > 0 && c.ending.cause_of(*c.ended) != death_cause::protocol;
  return d;
}

/// Whether the program exited successfully before its hello: then it is not a worker program, and
/// would exit in every place.
bool worker_supervision::is_no_worker_program(const child& c) const {
  return c.at == stage::started && c.ended->exited_with(exit_codes::finished) && !closing_ &&
         !c.ending.cause();
}

/// Whether the program exited before its hello. The message only hints at a wrong program, because the exit
/// may have another reason, such as a library that is missing for a while.
bool worker_supervision::died_before_hello(const child& c) const {
  return c.at == stage::started && c.ended->ending == process::exit_report::how::exited && !c.ended->is_permanent() &&
         !c.gave_up && !closing_ && !c.ending.cause();
}

worker_supervision::settled worker_supervision::blame_decided(worker_ref who, steady_time now, bool blamed,
                                                              std::uint64_t samples_done,
                                                              const std::string& last_words,
                                                              const std::string& during) {
  const child* c = find(who);
  if (c == nullptr || !c->ended) return {};
  const bool asked = c->ending.cause_of(*c->ended) == death_cause::stopped;
  const auto ignored_stop = c->ending.ignored_stop(*c->ended);
  const bool leaves = closing_ || c->sacrificial || pool_.leaves_with_host(who.worker);
  const settled news{c->cause, !asked, !asked || ignored_stop || !leaves, ignored_stop};
  death d = death_of(*c, blamed, samples_done);
  if (c->gave_up && d.ending == death::how::no_restart && !closing_ && !c->sacrificial) {
    outbox_.emplace_back(
        workers_failed{{c->gave_up->code, fmt::format("worker {}: {}", who.worker, c->gave_up->message), 0}});
  }
  std::string cause = news.cause + during;
  if (is_no_worker_program(*c)) {
    d.ending = death::how::no_restart;
    cause +=
        " before its hello ([loader] command is not a worker program: its main() calls neither "
        "penstock::worker_main nor, "
        "for a pool, penstock::job_main)";
  } else if (died_before_hello(*c)) {
    cause += " before its hello (a worker program calls penstock::worker_main or, for a pool, penstock::job_main)";
  }
  const std::string words = c->gave_up ? c->gave_up->message : last_words;
  children_.erase(who.worker);
  pool_.child_died(who, now, d, cause, words);
  return news;
}

// ---- looking ----------------------------------------------------------------------------------------------

void worker_supervision::look(steady_time now, const std::vector<worker_sign>& signs) {
  std::vector<child_sign> seen;
  for (const worker_sign& sign : signs) {
    const auto it = children_.find(sign.worker);
    if (it == children_.end() || it->second.ended) continue;
    if (!it->second.pid) {
      it->second.ending.start_waits_for(sign.work);
      continue;
    }
    seen.push_back({sign.worker, it->second.at == stage::ready, sign.heartbeats, sign.work_mark, sign.busy,
                    sign.traced, sign.limit});
  }
  for (hang_finding v : hangs_.look(now, seen)) {
    child& c = children_.at(v.worker);
    const auto sign = std::ranges::find(signs, v.worker, &worker_sign::worker);
    // The detector has counted only since it first saw this work.
    if (v.kind == hang::item) v.since = std::max(v.since, sign->worked);
    std::string why = v.reason(sign->work, sign->wait_channel);
    if (v.kind == hang::start && c.at == stage::started)
      why += "; it never said hello: does its main() call penstock::worker_main?";
    c.ending.hang(now, v.cause(), std::move(why));
  }
}

nanoseconds worker_supervision::tick() const {
  using namespace std::chrono_literals;
  return std::min(rules_.clocks.tick(), std::max<nanoseconds>(shortest_limit_ / 16, 5ms));
}

std::uint64_t worker_supervision::measured(worker_ref who, std::uint64_t private_bytes, std::uint64_t samples_done) {
  child* c = living(who);
  const bool may = may_recycle(who);
  if (c == nullptr || (!may && c->memory_peak == 0)) return 0;
  const bool grew = rules_.memory_max_bytes > 0 && private_bytes > std::max(rules_.memory_max_bytes, c->memory_peak);
  const bool first = grew && std::exchange(c->memory_peak, private_bytes) == 0;
  if (grew)
    c->ending.retire(death_cause::memory, fmt::format("it used {} of private memory, but [loader.limits] memory allows {}",
                                                      bytes_for_people(private_bytes), bytes_for_people(rules_.memory_max_bytes)));
  if (first) outbox_.emplace_back(memory_exceeded{who, c->pid.value_or(-1), private_bytes});
  const bool is_old = rules_.recycle_after_samples > 0 && samples_done >= rules_.recycle_after_samples;
  if (may && (first || is_old)) pool_.recycle(who);
  return c->memory_peak;
}

/// Only the owner may use the GPU. Workers and processes that they start must not.
void worker_supervision::uses_gpu(worker_ref who, steady_time now, const std::string& use) {
  child* c = living(who);
  if (c == nullptr || rules_.exclusive == exclusive_rule::off || std::exchange(c->gpu_use_known, true))
    return;
  if (rules_.exclusive == exclusive_rule::enforce) return c->ending.violate(now, use);
  outbox_.emplace_back(gpu_use_reported{who, use});
}

// ---- commands ---------------------------------------------------------------------------------------------

void worker_supervision::carry_out_pool_commands(steady_time now) {
  for (pool_command& command : pool_.advance(now)) {
    if (const auto* start = std::get_if<start_child>(&command)) {
      children_.erase(start->who.worker);
      child fresh(start->who, start->sacrificial, rules_.ending, now);
      fresh.ending.starting(now, rules_.clocks.start_deadline);
      children_.emplace(start->who.worker, std::move(fresh));
      hangs_.watch(start->who.worker, now);
      outbox_.emplace_back(start_worker{start->who, start->sacrificial});
    } else if (const auto* drain = std::get_if<drain_child>(&command)) {
      if (child* c = living(drain->who)) retire(*c, now);
    } else if (auto* lost = std::get_if<sacrificial_failed>(&command)) {
      outbox_.emplace_back(std::move(*lost));
    } else {
      outbox_.emplace_back(workers_failed{std::get<pool_failed>(command).reason});
    }
  }
}

void worker_supervision::enforce_deadlines(steady_time now) {
  for (auto& [place, c] : children_) {
    if (c.ended) continue;
    for (termination_command& command : c.ending.advance(now)) {
      if (const auto* signal = std::get_if<send_signal>(&command)) {
        outbox_.emplace_back(signal_worker{c.who, signal->number});
      } else if (auto* why = std::get_if<killing_begins>(&command)) {
        outbox_.emplace_back(killing_worker{c.who, c.pid, why->cause, std::move(why->reason)});
      } else {
        pool_.child_unkillable(c.who, c.ending.reason());
        outbox_.emplace_back(write_off_worker{c.who, c.pid, c.ending.cause() != death_cause::stopped, c.ending.cause() == death_cause::hang});
      }
    }
  }
}

std::vector<worker_command> worker_supervision::advance(steady_time now) {
  // Time during which the session did not run does not count for any deadline.
  pool_.discount_time(polls_.missed(now));
  carry_out_pool_commands(now);
  enforce_deadlines(now);
  if (closing_ && pool_.alive() == 0 && !std::exchange(closed_told_, true))
    outbox_.emplace_back(workers_closed{});
  return std::exchange(outbox_, {});
}

steady_time worker_supervision::next_deadline() const {
  steady_time due = pool_.next_deadline();
  for (const auto& [place, c] : children_) {
    if (!c.ended) due = std::min(due, c.ending.next_deadline());
  }
  return due;
}

}  // namespace penstock::supervision
