#include "runtime/schedule/lost_batches.hpp"

#include <algorithm>

namespace penstock::schedule {

void lost_batches::lost(std::uint64_t job, steady_time leased) {
  losses_.try_emplace(job, loss{leased, {}}).first->second.last_leased.reset();
  if (losses_.size() > kept) losses_.erase(losses_.begin());
}

void lost_batches::leased(std::uint64_t job, steady_time now) {
  if (const auto found = losses_.find(job); found != losses_.end()) found->second.last_leased = now;
}

void lost_batches::repeats(std::uint64_t job, std::uint64_t former) {
  const auto found = losses_.find(former);
  if (found == losses_.end()) return;
  losses_[job] = {found->second.first_leased, {}};
  losses_.erase(found);
}

std::optional<lost_wait> lost_batches::part_of_wait(std::uint64_t job, steady_time from, steady_time now) const {
  const auto found = losses_.find(job);
  if (found == losses_.end()) return std::nullopt;
  const steady_time to = std::min(found->second.last_leased.value_or(now), now);
  if (to <= std::max(from, found->second.first_leased)) return std::nullopt;
  return lost_wait{0, found->second.first_leased, from, to};
}

}  // namespace penstock::schedule
