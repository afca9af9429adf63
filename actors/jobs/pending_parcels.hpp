// Large results and errors received from workers before their rows are settled. A worker sends them in the
// order in which its rows end, and most rows are settled in that order; then no parcel is kept here. Used
// only by the job scheduler.
#pragma once

#include "actors/protocol/parcels.hpp"
#include "runtime/base/ids.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace penstock::jobs {

class pending_parcels {
 public:
  /// A correct worker sends at most one parcel per row that it holds and that is not settled:
  ///   its slots ([loader] slots_per_worker) x the rows of a lease (job_book_settings::rows_max).
  /// If a worker sends more, its oldest parcel is dropped.
  pending_parcels(std::uint32_t slots, std::uint32_t rows_max)
      : parcels_max_(std::size_t{slots} * rows_max) {}

  /// The parcel of a row; reads from the worker's socket until it arrives. Empty: it was not sent.
  std::optional<protocol::parcel> take(const lease_ref& lease, std::uint32_t row, int socket);
  /// Call when the worker is gone and everything that it finished has been settled.
  void forget(worker_ref who) { waiting_.erase(who); }

  /// The number of this worker's parcels that were read and not taken.
  [[nodiscard]] std::size_t kept(worker_ref who) const;

 private:
  std::size_t parcels_max_;
  std::map<worker_ref, std::vector<protocol::parcel>> waiting_;
};

}  // namespace penstock::jobs
