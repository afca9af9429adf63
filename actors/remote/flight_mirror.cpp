#include "actors/remote/flight_mirror.hpp"

#include "actors/remote/host_stream.hpp"

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds silent_after = 500ms;  // longer than the pause between two signs of life from a worker

}  // namespace

void flight_mirror::restart() {
  flight_ = {};
  mirrored_at_ = now();
}

void flight_mirror::show(std::uint32_t place, const flight_seen& seen, lent_jobs* jobs) {
  flight_.state = arena::unpack(seen.word);
  flight_.limit = nanoseconds(0);
  flight_.heartbeats = seen.heartbeats;
  flight_.samples_done = seen.samples_done;
  flight_.rss_bytes = seen.private_bytes;  // [loader.limits] memory limits the private memory
  flight_.sample_name = seen.sample_name;
  flight_.sample = seen.attempt == 0 ? std::nullopt : std::optional(arena::flight_sample{seen.sample, seen.attempt});
  flight_.since = now() - nanoseconds(seen.since_ns);
  flight_.reads_since = seen.reads_since_ns < 0 ? std::nullopt : std::optional(now() - nanoseconds(seen.reads_since_ns));
  if (jobs != nullptr) jobs->translate(flight_, seen.mark);
  if (seen.traced) pause_clocks();
  show(place);
}

void flight_mirror::stand_in(std::uint32_t place) {
  if (now() - mirrored_at_ <= silent_after) return;
  pause_clocks();
  show(place);
}

/// Makes the page show a sign of life of each kind, and no work that has a time limit.
void flight_mirror::pause_clocks() {
  ++signs_;
  flight_.heartbeats += signs_;
  flight_.state = {arena::phase::idle, 0, 0, signs_};
  flight_.limit = nanoseconds(0);
}

void flight_mirror::show(std::uint32_t place) {
  mirrored_at_ = now();
  pages_->mirror(place, flight_);
}

}  // namespace penstock::hosts
