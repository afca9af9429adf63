// Large results that workers have sent and nobody has asked for yet. Parcels come in the order of their rows, but results
// may be asked for in another one. Used by the job scheduler alone.
#pragma once

#include "actors/protocol/parcels.hpp"
#include "runtime/base/ids.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace penstock::jobs {

class parcel_shelf {
 public:
  /// The parcel of a row, read from its worker's socket first if need be. Nothing: it was not sent.
  std::optional<protocol::parcel> take(const lease_ref& lease, std::uint32_t row, int socket);
  /// The worker is gone, and everything that it had finished is settled.
  void forget(worker_ref who) { waiting_.erase(who); }

 private:
  // At most those of all rows of all leases of a worker, were it honest; who sends more loses the oldest.
  static constexpr std::size_t parcels_max = 1024;

  std::map<worker_ref, std::vector<protocol::parcel>> waiting_;
};

}  // namespace penstock::jobs
