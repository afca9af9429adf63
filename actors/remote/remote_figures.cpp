// How the session sees a remote worker: its flight page, and the figures of its connection.
#include "actors/remote/remote_connection.hpp"

#include <algorithm>
#include <utility>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds silent_after = 500ms;  // longer than the pause between two signs of life from a worker

}  // namespace

void remote_connection::mirror(const flight_seen& seen) {
  flight_.state = arena::unpack(seen.word);
  flight_.limit = nanoseconds(0);
  flight_.heartbeats = seen.heartbeats;
  flight_.samples_done = seen.samples_done;
  flight_.rss_bytes = seen.private_bytes;  // [loader.limits] memory limits the private memory
  flight_.sample_name = seen.sample_name;
  flight_.since = now() - nanoseconds(seen.since_ns);
  flight_.reads_since = seen.reads_since_ns < 0 ? std::nullopt : std::optional(now() - nanoseconds(seen.reads_since_ns));
  if (jobs_) jobs_->translate(flight_, seen.mark);
  if (seen.traced) pause_clocks();
  {
    const std::lock_guard hold(mutex_);
    figures_.resident_bytes = seen.resident_bytes;
    figures_.times.cpu = nanoseconds(seen.cpu_ns);
    figures_.times.core_wait = nanoseconds(seen.core_wait_ns);
  }
  show_flight();
}

/// While the host's messages wait behind a transfer, or none arrive, the worker must not look hung: only lost_after decides
/// then (rule H5).
void remote_connection::stand_in() {
  if (!link_ || now() - mirrored_at_ <= silent_after) return;
  pause_clocks();
  show_flight();
}

/// Makes the page show a sign of life of each kind, and no work that has a time limit.
void remote_connection::pause_clocks() {
  ++signs_;
  flight_.heartbeats += signs_;
  flight_.state = {arena::phase::idle, 0, 0, signs_};
  flight_.limit = nanoseconds(0);
}

void remote_connection::show_flight() {
  mirrored_at_ = now();
  around_->flights->mirror(*place_, flight_);
}

// ---- figures --------------------------------------------------------------------------------------------------

connection_figures remote_connection::figures() const {
  const std::lock_guard hold(mutex_);
  connection_figures seen = figures_;
  if (!receives_) return seen;
  const nanoseconds passed = now() - receives_->since;
  seen.times.receiving += passed;
  seen.times.rests = passed > receives_->loading;
  return seen;
}

/// `loading`: how long the worker took to load the arriving batch. figures() assumes that the next one takes as
/// long.
void remote_connection::note_receiving(nanoseconds loading) {
  const std::lock_guard hold(mutex_);
  receives_ = {now(), loading};
}

void remote_connection::note_received() {
  const std::lock_guard hold(mutex_);
  figures_.times.receiving += now() - std::exchange(receives_, std::nullopt)->since;
}

void remote_connection::note_held() {
  const std::uint64_t held = !link_ ? 0 : jobs_ ? jobs_->held() : landing_.waiting();
  const std::lock_guard hold(mutex_);
  figures_.holds = held;
}

}  // namespace penstock::hosts
