#include "actors/session/progress_ticker.hpp"

#include "runtime/process/process_facts.hpp"

#include <utility>

namespace penstock::session {
namespace {

using namespace std::chrono_literals;

constexpr auto look_every = 1s;     // the watch's patience is 5 s
constexpr double long_seconds = 4;  // a sample that takes this long is about to stall the stream

}  // namespace

std::map<std::uint32_t, std::string> standing_of(const session_status& status,
                                                 const arena::flight_recorders& flights) {
  std::map<std::uint32_t, std::string> places;
  for (const worker_status& w : status.workers) {
    if (!w.pid || w.current_sample_seconds.value_or(0) < long_seconds) continue;
    places[w.id] = process::wait_channel(*w.pid, flights.read(w.id).thread);
  }
  return places;
}

progress_ticker::progress_ticker(process::io_thread& io, gather facts, tell news)
    : facts_(std::move(facts)), tell_(std::move(news)), ticker_(io, look_every, [this] { look(); }) {}

void progress_ticker::look() {
  const double stood = watch_.stalled() ? watch_.stalled()->seconds : 0;
  const auto news = watch_.look(std::chrono::steady_clock::now(), facts_());
  tell_(news, watch_.stalled(), stood);
}

}  // namespace penstock::session
