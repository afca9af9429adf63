#include "actors/supervisor/death_record.hpp"

#include "runtime/base/exit_codes.hpp"
#include "runtime/base/text.hpp"

#include <fmt/core.h>

#include <csignal>

namespace penstock::supervisor {
namespace {

/// Killed for its silence, that is: one that was ending by itself meanwhile did not die of us.
bool ended_by_itself(const child& c) {
  const process::exit_report& report = *c.ended;
  const bool shot = report.ending == process::exit_report::how::signalled && report.code == SIGKILL;
  return c.left_its_link && c.condemned == death_cause::protocol && !shot;
}

death_cause cause_of(const child& c) {
  const process::exit_report& report = *c.ended;
  if (c.condemned && !ended_by_itself(c)) return *c.condemned;
  switch (report.ending) {
    case process::exit_report::how::signalled: return death_cause::signal;
    case process::exit_report::how::exited: return death_cause::exit;
    case process::exit_report::how::unknown: break;
  }
  return death_cause::unknown;
}

}  // namespace

std::string cause_in_words(const child& c) {
  const process::exit_report& report = *c.ended;
  if (c.condemned && *c.condemned != death_cause::stopped && !ended_by_itself(c))
    return name_of(*c.condemned);
  switch (report.ending) {
    case process::exit_report::how::signalled: return process::signal_name(report.code);
    case process::exit_report::how::exited: return fmt::format("exit {}", report.code);
    case process::exit_report::how::unknown: break;
  }
  return "unknown";
}

std::optional<schedule::flight_mark> sample_in_hand(const child& c) {
  const arena::flight_state& at = c.last_flight.state;
  const bool on_a_sample =
      at.at == arena::phase::loading || at.at == arena::phase::checking || at.at == arena::phase::collating;
  return on_a_sample ? std::optional(schedule::flight_mark{at.slot, at.generation, at.row}) : std::nullopt;
}

std::optional<schedule::flight_mark> suspected_in(const child& c) {
  const process::exit_report& report = *c.ended;
  const bool sent_home = c.condemned == death_cause::stopped || c.condemned == death_cause::memory;
  const bool went = report.ending == process::exit_report::how::exited;
  const bool was_shot = report.ending == process::exit_report::how::signalled && report.code == SIGKILL;
  // Whom we sent home and who went, or whom we killed when he did not, is no death of a sample.
  if (sent_home && (went || was_shot)) return std::nullopt;
  return sample_in_hand(c);
}

supervision::death as_death(const child& c, const scheduler::judgement& verdict) {
  supervision::death d;
  const process::exit_report& report = *c.ended;
  if (report.ending == process::exit_report::how::exited) {
    if (report.code == exit_codes::finished) d.ending = supervision::death::how::normal;
    if (exit_codes::is_permanent(report.code)) d.ending = supervision::death::how::no_restart;
  }
  if (c.condemned == death_cause::stopped || c.condemned == death_cause::memory)
    d.ending = supervision::death::how::operated;
  d.charged = verdict.charged.has_value();
  d.fruitful = c.ready && c.last_flight.samples_done > 0;
  return d;
}

death_report as_report(const child& c, const scheduler::judgement& verdict, steady_time now) {
  death_report r;
  r.worker = c.who.worker;
  r.pid = c.pid;
  r.incarnation = c.who.incarnation;
  r.cause = cause_of(c);
  if (c.ended->ending == process::exit_report::how::signalled) r.signal = process::signal_name(c.ended->code);
  if (c.ended->ending == process::exit_report::how::exited) r.code = c.ended->code;
  if (verdict.charged) {
    r.sample = verdict.charged->sample;
    r.attempt = verdict.charged->attempt;
    r.epoch = verdict.epoch;
    r.sequence = verdict.sequence;
    if (!c.last_flight.sample_name.empty()) r.path = printable(c.last_flight.sample_name);
  }
  r.phase = std::string(arena::name_of(c.last_flight.state.at));
  r.lived_seconds = std::chrono::duration<double>(now - c.started).count();
  r.time = c.ended->noticed;
  r.rss_bytes = c.last_flight.rss_bytes > 0 ? c.last_flight.rss_bytes : c.rss_bytes;
  r.wait_channel = c.wait_channel;
  r.stack = c.stack;
  r.last_output = c.last_lines;
  return r;
}

std::string last_words_of(const child& c) {
  if (c.farewell) return c.farewell->reason;
  return c.last_lines;
}

}  // namespace penstock::supervisor
