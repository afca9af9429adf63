#include "runtime/schedule/departures.hpp"

#include <utility>

namespace penstock::schedule {

void departures::drains(worker_ref who, bool after_current_batch) {
  departure& d = leaving_[who.worker];
  if (d.who != who) d = {who};
  d.after_current_batch = after_current_batch;
}

void departures::finished_a_batch(worker_ref who) {
  const auto d = leaving_.find(who.worker);
  if (d != leaving_.end() && d->second.who == who) d->second.finished_one = d->second.after_current_batch;
}

void departures::gone(worker_ref who) {
  const auto d = leaving_.find(who.worker);
  if (d != leaving_.end() && d->second.who == who) leaving_.erase(d);
}

std::vector<worker_ref> departures::due(const std::function<std::size_t(std::uint32_t)>& leases_of) {
  std::vector<worker_ref> now;
  for (auto& [place, d] : leaving_) {
    if (!d.finished_one && leases_of(place) > 0) continue;
    if (!std::exchange(d.told, true)) now.push_back(d.who);
  }
  return now;
}

}  // namespace penstock::schedule
