#include "runtime/telemetry/run_rates.hpp"

#include <algorithm>
#include <utility>

namespace penstock::telemetry {
namespace {

/// What the program has received so far. Batches that a data loader has loaded ahead do not count.
std::uint64_t delivered_in(const session_status& status) {
  if (!status.jobs) return status.samples_delivered;
  return status.jobs->of_batches ? status.batches_delivered : status.jobs->ok + status.jobs->failed + status.jobs->cancelled;
}

}  // namespace

void run_rates::look(steady_time now, const session_status& status, bool was_suspended) {
  const bool is_paused = status.state == session_state::paused;
  has_begun_ = has_begun_ || delivered_in(status) > 0 || std::ranges::find(status.workers, child_state::ready, &worker_status::state) != status.workers.end();
  const bool counts = has_begun_ && !was_suspended && !is_paused && !was_paused_;
  was_paused_ = is_paused;
  const auto read = [&](rate_meter& meter, std::uint64_t total) { counts ? meter.add(now, total) : meter.skip(now, total); };
  read(delivered_, delivered_in(status));
  std::map<std::uint32_t, place> before = std::exchange(places_, {});
  for (const worker_status& w : status.workers) {
    const auto known = before.find(w.id);
    place& p = places_.emplace(w.id, known == before.end() ? place{rate_meter(looked_), w.incarnation} : std::move(known->second)).first->second;
    if (std::exchange(p.incarnation, w.incarnation) != w.incarnation) p.seen = 0;
    p.total += std::max(w.samples, p.seen) - p.seen;
    p.seen = std::max(w.samples, p.seen);
    read(p.meter, p.total);
  }
  looked_ = now;
}

rates_told run_rates::told() const {
  rates_told all{delivered_.per_second(), {}};
  for (const auto& [worker, p] : places_) {
    if (const auto rate = p.meter.per_second()) all.loaded[worker] = *rate;
  }
  return all;
}

}  // namespace penstock::telemetry
