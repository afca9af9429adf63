// Arguments and results of jobs that do not fit their slot: each travels in a sealed memory file of its own, as a
// descriptor over a socket pair beside the link (child_fd::parcels). Packets keep their bounds (SOCK_SEQPACKET), so a
// parcel arrives whole or not at all, and in the order in which it was sent. Used by actors/jobs and actors/job_worker.
//
// The session believes nothing of what a worker sends: a file that could still change or shrink under whoever maps it, a
// size that is not the announced one, no descriptor, or more than one, are refused.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <cstdint>
#include <optional>
#include <utility>

namespace penstock::protocol {

/// Which argument or result it is.
struct parcel_label {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t row = 0;
  std::uint64_t bytes = 0;  ///< the size of the file; never 0

  bool operator==(const parcel_label&) const = default;
};

struct parcel {
  parcel_label label;
  unique_fd file;  ///< sealed: neither its size nor its contents can change
};

/// Two connected ends, both close-on-exec.
result<std::pair<unique_fd, unique_fd>> make_parcel_pair();

/// Sends a descriptor of `file`, which is sealed and has label.bytes; the caller closes its own. Waits up to `patience`
/// while the socket is full. False: it still is. Refuses (errc::system) when the kernel does, a closed other end among
/// the reasons.
result<bool> send_parcel(int socket, const parcel_label& label, int file,
                         nanoseconds patience = nanoseconds(0));

/// The next parcel; waits up to `patience` for it. Nothing: none came. Refuses (errc::protocol) what is no parcel, after
/// which the socket should not be read again, and (errc::stopped) a closed other end.
result<std::optional<parcel>> receive_parcel(int socket, nanoseconds patience = nanoseconds(0));

}  // namespace penstock::protocol
