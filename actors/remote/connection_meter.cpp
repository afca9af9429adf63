#include "actors/remote/connection_meter.hpp"

#include "actors/remote/host_stream.hpp"

#include <utility>

namespace penstock::hosts {

connection_figures connection_meter::figures() const {
  const std::lock_guard hold(mutex_);
  connection_figures seen = figures_;
  if (!receives_) return seen;
  const nanoseconds passed = now() - receives_->since;
  seen.times.receiving += passed;
  seen.times.rests = passed > receives_->loading;
  return seen;
}

void connection_meter::receiving(nanoseconds loading) {
  const std::lock_guard hold(mutex_);
  receives_ = {now(), loading};
}

void connection_meter::received() {
  const std::lock_guard hold(mutex_);
  figures_.times.receiving += now() - std::exchange(receives_, std::nullopt)->since;
}

void connection_meter::holds(std::uint64_t held) {
  const std::lock_guard hold(mutex_);
  figures_.holds = held;
}

void connection_meter::seen(const flight_seen& worker) {
  const std::lock_guard hold(mutex_);
  figures_.resident_bytes = worker.resident_bytes;
  figures_.times.cpu = nanoseconds(worker.cpu_ns);
  figures_.times.core_wait = nanoseconds(worker.core_wait_ns);
}

}  // namespace penstock::hosts
