#include "actors/supervisor/death_record.hpp"

#include "runtime/base/batch_work.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/death_words.hpp"
#include "runtime/base/job_name.hpp"
#include "runtime/base/memory_words.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace penstock::supervisor {
namespace {

constexpr nanoseconds soon{1'000'000'000};  // shorter delays are not mentioned

template <class Report>
std::string text_of_end(const Report& d) {
  if (d.ignored_stop_seconds) {
    const nanoseconds time(static_cast<std::int64_t>(*d.ignored_stop_seconds * 1e9));
    if (time < supervision::hurried_stop)
      return "was killed right after the stop, without time to finish: by `stop --now`, or because its program closed the session";
    return killed_at_stop_in_words(time);
  }
  if (d.cause == death_cause::stopped) return "was stopped on request";
  if (d.cause == death_cause::signal && d.signal && !d.reason.empty()) return fmt::format("ended: {} ({})", *d.signal, d.reason);
  if (d.cause == death_cause::memory && !d.reason.empty()) return "was stopped: " + d.reason;
  if (!d.reason.empty()) return "was killed: " + d.reason;
  if (d.cause == death_cause::signal && d.signal) return "ended: " + *d.signal;
  if (d.cause == death_cause::exit && d.code) return fmt::format("ended: exit {}", *d.code);
  return fmt::format("ended: {}", name_of(d.cause));
}

}  // namespace

std::string work_in_hand(const worker_facts& w, work_kind kind) {
  const std::string_view name = w.last_flight.sample_name;
  return printable(kind == work_kind::samples ? name : job_named(name).value_or(named_job{}).work);
}

memory_excess excess_of(const arena::flight_reading& flight, std::uint64_t bytes, std::uint64_t limit_bytes) {
  memory_excess over{bytes, limit_bytes, {}, {}};
  if (flight.state.at == arena::phase::idle) return over;
  over.work = printable(flight.sample_name);
  if (flight.sample) over.sample = flight.sample->index;
  return over;
}

bool has_work(const arena::flight_reading& w) {
  const arena::phase at = w.state.at;
  return at == arena::phase::loading || at == arena::phase::checking || at == arena::phase::collating;
}

bool is_told_as_job(const death_report& d, work_kind kind, bool jobs_are_told) {
  return kind == work_kind::jobs && d.job && d.cause != death_cause::memory && (jobs_are_told || d.cause == death_cause::hang);
}

std::optional<schedule::flight_mark> sample_in_hand(const worker_facts& w) {
  const arena::flight_state& at = w.last_flight.state;
  return has_work(w.last_flight) ? std::optional(schedule::flight_mark{at.slot, at.generation, at.row}) : std::nullopt;
}

death_report as_report(const worker_facts& w, const supervision::termination& ending,
                       const scheduler::blame_decision& decision, work_kind kind, steady_time now) {
  death_report r;
  r.worker = w.who.worker;
  r.pid = w.pid;
  r.incarnation = w.who.incarnation;
  r.cause = ending.cause_of(*w.ended);
  if (w.ended->ending == process::exit_report::how::signalled) r.signal = process::signal_name(w.ended->code);
  if (w.ended->ending == process::exit_report::how::exited) r.code = w.ended->code;
  if (decision.blamed && kind != work_kind::samples) {
    r.job = decision.blamed->sample;
    r.attempt = decision.blamed->attempt;
    if (std::string work = work_in_hand(w, kind); !work.empty()) r.work = std::move(work);
  } else if (decision.blamed) {
    r.sample = decision.blamed->sample;
    r.attempt = decision.blamed->attempt;
    r.epoch = decision.epoch;
    r.sequence = decision.sequence;
    if (std::string path = work_in_hand(w, kind); !path.empty()) r.path = std::move(path);
  }
  const auto ignored = ending.ignored_stop(*w.ended);
  if (ignored) r.ignored_stop_seconds = std::chrono::duration<double>(*ignored).count();
  const bool ordered = r.cause == death_cause::stopped && ending.killed_here(*w.ended);
  const bool idle = w.last_flight.state.at == arena::phase::idle;
  if ((ignored || ordered) && !idle) {
    std::string work = work_in_hand(w, kind);
    if (!work.empty() && kind != work_kind::samples) r.job = job_named(w.last_flight.sample_name).value_or(named_job{}).job;
    if (!work.empty()) (kind == work_kind::samples ? r.path : r.work) = std::move(work);
    if (decision.in_hand && kind == work_kind::samples) {
      r.sample = decision.in_hand;
      r.epoch = decision.epoch;
      r.sequence = decision.sequence;
    }
  }
  if (r.cause == death_cause::memory && w.over_memory && !w.over_memory->work.empty()) {
    const auto named = kind == work_kind::samples ? std::nullopt : job_named(w.over_memory->work);
    if (named) r.job = named->job;
    // Named, but not as `sample`, which a reader may take for the one to blame.
    (kind == work_kind::samples ? r.path : r.work) = named ? std::string(named->work) : w.over_memory->work;
  }
  if (kind == work_kind::batches && r.work && r.cause != death_cause::memory) r.sample = sample_in_work(*r.work);
  // For a data loader's worker, count from when it began the sample, not the batch.
  const steady_time since = kind == work_kind::batches ? w.last_flight.named_since.value_or(w.last_flight.since) : w.last_flight.since;
  const steady_time until = ending.hung_at().value_or(now);  // a hung process may take seconds to end
  if (!idle && r.cause != death_cause::memory && (r.job || r.sample || r.path)) r.worked_seconds = std::chrono::duration<double>(std::max(until - since, nanoseconds(0))).count();
  if (!ignored) {
    r.held = decision.held;
    r.held_again = decision.held_again;
  }
  r.phase = w.last_flight.state.at;
  r.lived_seconds = std::chrono::duration<double>(now - w.started).count();
  r.time = w.ended->noticed;
  r.rss_bytes = w.last_flight.rss_bytes > 0 ? w.last_flight.rss_bytes : w.rss_bytes;
  r.wait_channel = w.wait_channel;
  r.stack = w.stack;
  r.last_output = w.last_lines;
  r.reason = r.cause == death_cause::signal ? w.sent_signal : ending.fault(*w.ended);
  return r;
}

std::string end_text(const death_report& death) {
  const bool at_once = death.cause == death_cause::stopped && !death.ignored_stop_seconds && death.signal == "SIGKILL";
  return at_once ? "was killed on request" : text_of_end(death);
}

std::string end_text(const owner_death_report& death) {
  return text_of_end(death);
}

std::string preparation_text(work_phase phase, work_kind kind) {
  const std::string_view words = arena::preparation_in_words(phase);
  return kind == work_kind::samples && !words.empty() ? fmt::format(", while {}", words) : "";
}

std::string blame_text(const death_report& d, work_kind kind) {
  if (d.cause == death_cause::memory && d.attempt == 0) {
    const std::string work = d.job && kind == work_kind::jobs ? fmt::format("{} (job {})", d.work.value_or(""), *d.job) : d.work.value_or(d.path.value_or(""));
    return noticed_in_words({0, 0, work, d.sample}, kind);
  }
  if (d.job && kind == work_kind::batches) {
    const std::string doing = doing_in_words(d.work.value_or("a batch"));
    const bool is_said = d.cause == death_cause::hang && d.reason.starts_with("it has been " + doing);
    return is_said ? "" : ", while " + doing;
  }
  if (d.job)
    return fmt::format(", while running job {}{}", *d.job, d.work ? fmt::format(" ({})", *d.work) : "");
  if (d.sample && d.attempt == 0 && d.epoch && d.sequence)  // not blamed
    return fmt::format(", while working on {}, in batch {} of epoch {}", sample_for_people(*d.sample, d.path.value_or("")), *d.sequence, *d.epoch);
  if (d.sample) return ", while loading " + sample_for_people(*d.sample, d.path.value_or(""));
  const std::optional<std::string>& work = d.work ? d.work : d.path;
  return d.cause == death_cause::stopped && work ? fmt::format(", while working on '{}'", *work) : preparation_text(d.phase, kind);
}

std::string history_text(const death_report& d, work_kind kind) {
  std::string text;
  if (d.worked_seconds && d.cause == death_cause::stopped && !d.ignored_stop_seconds)
    text = fmt::format(", for {}", duration_for_people(nanoseconds(static_cast<std::int64_t>(*d.worked_seconds * 1e9))));
  if (d.hung_before > 0) {
    const bool no_retry = d.cause == death_cause::hang || d.ignored_stop_seconds;  // a worker that ignored a stop is not replaced
    const std::string_view way_out = way_out_of_hangs(kind, no_retry);
    text += fmt::format("; that had hung {} before{}{}", counted(d.hung_before, "time"), way_out.empty() ? "" : ": ", way_out);
  }
  if (d.held > 0) text += "; " + repeated_in_words(d.held, d.held_again, kind);
  return text;
}

std::string death_text(const death_report& d, work_kind kind) {
  return fmt::format("worker {}{} {}{}{}", d.worker, d.pid > 0 ? fmt::format(" (pid {})", d.pid) : "", end_text(d), blame_text(d, kind),
                     history_text(d, kind));
}

std::string next_text(const death_report& d, const supervision::place_view& place, steady_time now) {
  std::string text;
  if (place.state == child_state::failed) text = "; it is not replaced";
  if (place.state == child_state::backoff) {
    const nanoseconds delay = place.next_restart - now;
    text = "; a replacement starts" + (delay > soon ? " in " + duration_for_people(delay) : "");
  }
  if (!d.stack.empty()) text += "; stack: `penstock deaths --stacks`, with --last after the end";
  return text;
}

}  // namespace penstock::supervisor
