#include "actors/host/progress_ticker.hpp"

#include "actors/host/run_events.hpp"
#include "actors/supervisor/death_record.hpp"
#include "runtime/base/log.hpp"
#include "runtime/process/process_facts.hpp"

#include <utility>

namespace penstock::host {
namespace {

using namespace std::chrono_literals;

constexpr auto look_every = 1s;     // well below the watch's patience of 5 s
constexpr double long_seconds = 4;  // a sample that takes this long is about to stall the stream

/// Whether the worker's sample is taking long, or the worker has no sample: a worker that is suspended between two
/// samples can stall the stream, too.
bool may_hold_up(const worker_status& w) {
  return w.current_sample ? w.current_sample_seconds.value_or(0) >= long_seconds : w.state == child_state::ready || w.state == child_state::draining;
}

}  // namespace

std::map<std::uint32_t, std::string> standing_of(const session_status& status, std::uint32_t first_remote_place,
                                                 const arena::flight_recorders& flights) {
  std::map<std::uint32_t, std::string> places;
  for (const worker_status& w : status.workers) {
    if (!w.pid || w.id >= first_remote_place || !may_hold_up(w)) continue;
    places[w.id] = process::wait_channel(*w.pid, flights.read(w.id).thread);
  }
  return places;
}

std::map<std::uint32_t, supervision::loading_now> loading_of(const session_status& status,
                                                             const arena::flight_recorders& flights) {
  std::map<std::uint32_t, supervision::loading_now> workers;
  for (const worker_status& w : status.workers) {
    if (!w.pid) continue;
    const arena::flight_reading flight = flights.read(w.id);
    if (!supervisor::has_work(flight)) continue;
    const bool all_rows = flight.state.at == arena::phase::collating;
    workers[w.id] = {flight.state.slot, flight.state.row + (all_rows ? 1U : 0U), flight.since};
  }
  return workers;
}

void announce(supervision::progress_watch::news what_changed, const std::optional<stall_report>& stalled,
              double stood_seconds, std::string_view what, board& published,
              const std::function<void(event)>& tell) {
  using news = supervision::progress_watch::news;
  published.stalled(stalled);
  if (what_changed == news::none) return;
  event said = what_changed == news::stalled
                   ? event_of(*stalled)
                   : event_of(event_kind::progress_again,
                              fmt::format("the {} is making progress again after {:.0f} s", what, stood_seconds));
  if (what_changed == news::stalled) {
    log::warn("session", "{}", said.text);
  } else {
    log::info("session", "{}", said.text);
  }
  tell(std::move(said));
}

progress_ticker::progress_ticker(process::io_thread& io, gather facts, tell news)
    : facts_(std::move(facts)),
      tell_(std::move(news)),
      clock_(std::chrono::steady_clock::now(), look_every),
      standstill_(look_every),
      rates_(std::chrono::steady_clock::now()),
      ticker_(io, look_every, [this] { look(); }) {}

std::optional<stall_report> progress_ticker::stalled_at(const supervision::progress_facts& facts) const {
  running_clock next = clock_;
  return watch_.stalled_at(next.look(std::chrono::steady_clock::now()), facts);
}

void progress_ticker::look() {
  const double stood = watch_.stalled() ? watch_.stalled()->seconds : 0;
  const steady_time now = std::chrono::steady_clock::now();
  const supervision::progress_facts facts = facts_();
  rates_.look(now, facts.status, standstill_.look().has_value());
  using news_of_watch = supervision::progress_watch::news;
  auto news = watch_.look(clock_.look(now), facts);
  if (news == news_of_watch::moves_again && facts.status.state == session_state::stopping) news = news_of_watch::none;  // a stop ended the wait; the stream made no progress
  tell_(news, watch_.stalled(), stood, rates_.told());
}

}  // namespace penstock::host
