// Arguments and results of jobs that do not fit their slot: each is sent in a sealed memory file, passed as a
// descriptor over a second socket pair (child_fd::parcels). SOCK_SEQPACKET keeps message boundaries, so a
// parcel arrives complete or not at all, in the order of sending. Used by actors/jobs and actors/job_worker.
//
// The session does not trust a worker. It refuses a file that can still change or shrink while mapped, a size
// other than the announced one, and any number of descriptors other than one.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <cstdint>
#include <optional>
#include <utility>

namespace penstock::protocol {

/// Replaces the slot in the label of a parcel that is not an argument or result but a file that the pool's program has
/// published; `row` is its number. Only on loader hosts.
inline constexpr std::uint32_t shared_file_slot = 0xffff'ffff;

/// Identifies the argument or result.
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

/// For tests. `patience` does not count time during which this thread did not run.
using parcel_clock = steady_time (*)();

/// Sends a duplicate of `file`, which must be sealed and have label.bytes bytes; the caller keeps the
/// original. Waits up to `patience` while the socket is full; false if it is still full then. Fails
/// (errc::system) with the kernel's error, for example if the peer has closed its end.
result<bool> send_parcel(int socket, const parcel_label& label, int file,
                         nanoseconds patience = nanoseconds(0), parcel_clock time = &std::chrono::steady_clock::now);

/// The next parcel; waits for it up to `patience`. Empty: none arrived. Fails with errc::protocol on an
/// invalid parcel, after which the socket should not be read again, and with errc::stopped if the peer has
/// closed its end.
result<std::optional<parcel>> receive_parcel(int socket, nanoseconds patience = nanoseconds(0),
                                             parcel_clock time = &std::chrono::steady_clock::now);

}  // namespace penstock::protocol
