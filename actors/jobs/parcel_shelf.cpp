#include "actors/jobs/parcel_shelf.hpp"

#include <algorithm>

namespace penstock::jobs {

std::optional<protocol::parcel> parcel_shelf::take(const lease_ref& lease, std::uint32_t row, int socket) {
  std::vector<protocol::parcel>& waiting = waiting_[lease.holder];
  while (socket >= 0) {
    auto next = protocol::receive_parcel(socket);
    if (!next || !*next) break;
    if (waiting.size() == parcels_max) waiting.erase(waiting.begin());
    waiting.push_back(std::move(**next));
  }
  const auto found = std::ranges::find_if(waiting, [&](const protocol::parcel& p) {
    return p.label.slot == lease.slot && p.label.generation == lease.generation && p.label.row == row;
  });
  if (found == waiting.end()) return std::nullopt;
  std::optional<protocol::parcel> taken(std::move(*found));
  waiting.erase(found);
  return taken;
}

}  // namespace penstock::jobs
