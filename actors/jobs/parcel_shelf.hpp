// Large results received from workers and not yet taken. Parcels arrive in the order of their rows but may be
// taken in any order. Used only by the job scheduler.
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
  /// The parcel of a row; reads from the worker's socket if needed. Empty: it was not sent.
  std::optional<protocol::parcel> take(const lease_ref& lease, std::uint32_t row, int socket);
  /// The worker is gone and everything that it finished is settled.
  void forget(worker_ref who) { waiting_.erase(who); }

 private:
  // Parcels of one worker that have not been taken. An honest worker has at most one per leased row: with the
  // default slots_per_worker 3 x 256 (rows_max of a lease) = 768. Beyond this limit the oldest is dropped.
  static constexpr std::size_t parcels_max = 1024;

  std::map<worker_ref, std::vector<protocol::parcel>> waiting_;
};

}  // namespace penstock::jobs
