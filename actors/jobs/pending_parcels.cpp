#include "actors/jobs/pending_parcels.hpp"

#include <algorithm>

namespace penstock::jobs {

std::optional<protocol::parcel> pending_parcels::take(const lease_ref& lease, std::uint32_t row, int socket) {
  const auto is_it = [&](const protocol::parcel& p) {
    return p.label.slot == lease.slot && p.label.generation == lease.generation && p.label.row == row;
  };
  std::vector<protocol::parcel>& waiting = waiting_[lease.holder];
  if (const auto found = std::ranges::find_if(waiting, is_it); found != waiting.end()) {
    std::optional<protocol::parcel> taken(std::move(*found));
    waiting.erase(found);
    return taken;
  }
  while (socket >= 0) {
    auto next = protocol::receive_parcel(socket);
    if (!next || !*next) break;
    if (is_it(**next)) return std::move(*next);
    if (waiting.size() == parcels_max_) waiting.erase(waiting.begin());
    waiting.push_back(std::move(**next));
  }
  return std::nullopt;
}

std::size_t pending_parcels::kept(worker_ref who) const {
  const auto found = waiting_.find(who);
  return found == waiting_.end() ? 0 : found->second.size();
}

}  // namespace penstock::jobs
