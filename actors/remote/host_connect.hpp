// Connects to the other side of a connection, and listens for it. Used by host_connection and host_door (hosts that join or are called),
// and host_caller and host_hub (sessions that call or are joined).
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/group/group_address.hpp"

namespace penstock::hosts {

/// Tries each address of the name. Blocks: for at most `at_most` an address, and for as long as the system's resolver
/// needs. Gives up when `wake` becomes readable. Refuses (errc::io).
result<unique_fd> connect_to(const group::group_address& at, nanoseconds at_most, int wake = -1);

/// group::listen_at(), but refuses (errc::config) a numeric address that is not of this machine: it would listen on all
/// addresses, also on networks that were not meant.
result<unique_fd> listen_there(const group::group_address& at, std::chrono::seconds first_bytes_within);

}  // namespace penstock::hosts
