// Arguments that came in memory files, until their rows are begun. They come in the order of leases and rows, but not all
// are wanted: a job that was revoked has no use for its own, which may have been sent before or never. Used by the
// job_runner; one thread.
#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/protocol/parcels.hpp"

#include <deque>
#include <map>
#include <optional>

namespace penstock::job_worker {

class argument_parcels {
 public:
  explicit argument_parcels(int socket) noexcept : socket_(socket) {}

  /// The argument of a row; waits up to `patience` for it. Nothing: it has not come. What is passed over is kept if it is
  /// of a row or lease that is still to come. Refuses as receive_parcel does.
  result<std::optional<protocol::parcel>> take(const protocol::run_jobs& lease, std::uint32_t row,
                                               nanoseconds patience);

  /// No row of it will be begun any more: gives back what came for it, and what comes later as soon as it is seen.
  void lease_over(const protocol::run_jobs& lease);

  [[nodiscard]] std::size_t kept() const noexcept { return kept_.size(); }

 private:
  [[nodiscard]] bool wanted(const protocol::parcel_label& label) const;

  int socket_;
  std::deque<protocol::parcel> kept_;            // at most what the session has sent ahead
  std::map<std::uint32_t, std::uint32_t> over_;  // by slot: the generation of its last lease
};

}  // namespace penstock::job_worker
