#include "actors/supervisor/death_record.hpp"

#include "runtime/base/text.hpp"

namespace penstock::supervisor {

std::optional<schedule::flight_mark> sample_in_hand(const worker_facts& w) {
  const arena::flight_state& at = w.last_flight.state;
  const bool on_a_sample =
      at.at == arena::phase::loading || at.at == arena::phase::checking || at.at == arena::phase::collating;
  return on_a_sample ? std::optional(schedule::flight_mark{at.slot, at.generation, at.row}) : std::nullopt;
}

death_report as_report(const worker_facts& w, const supervision::termination& ending,
                       const scheduler::judgement& verdict, steady_time now) {
  death_report r;
  r.worker = w.who.worker;
  r.pid = w.pid;
  r.incarnation = w.who.incarnation;
  r.cause = ending.cause_of(*w.ended);
  if (w.ended->ending == process::exit_report::how::signalled) r.signal = process::signal_name(w.ended->code);
  if (w.ended->ending == process::exit_report::how::exited) r.code = w.ended->code;
  if (verdict.charged) {
    r.sample = verdict.charged->sample;
    r.attempt = verdict.charged->attempt;
    r.epoch = verdict.epoch;
    r.sequence = verdict.sequence;
    if (!w.last_flight.sample_name.empty()) r.path = printable(w.last_flight.sample_name);
  }
  r.phase = std::string(arena::name_of(w.last_flight.state.at));
  r.lived_seconds = std::chrono::duration<double>(now - w.started).count();
  r.time = w.ended->noticed;
  r.rss_bytes = w.last_flight.rss_bytes > 0 ? w.last_flight.rss_bytes : w.rss_bytes;
  r.wait_channel = w.wait_channel;
  r.stack = w.stack;
  r.last_output = w.last_lines;
  return r;
}

}  // namespace penstock::supervisor
