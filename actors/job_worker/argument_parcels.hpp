// Arguments received in memory files, kept until their rows start. They arrive in the order of leases and
// rows, but the argument of a revoked job may or may not have been sent, and is not needed. Used by the
// job_runner; not thread-safe.
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

  /// The argument of a row; waits for it up to `patience`. Empty: it has not arrived. Keeps other arguments
  /// that arrive meanwhile if their row or lease is still to come. Fails like receive_parcel.
  result<std::optional<protocol::parcel>> take(const protocol::run_jobs& lease, std::uint32_t row,
                                               nanoseconds patience);

  /// Call when no more rows of this lease will start. Frees the lease's arguments, including those that
  /// arrive later.
  void lease_over(const protocol::run_jobs& lease);

  [[nodiscard]] std::size_t kept() const noexcept { return kept_.size(); }

 private:
  [[nodiscard]] bool wanted(const protocol::parcel_label& label) const;

  int socket_;
  std::deque<protocol::parcel> kept_;            // at most what the session has sent in advance
  std::map<std::uint32_t, std::uint32_t> over_;  // slot -> generation of its last lease that ended
};

}  // namespace penstock::job_worker
