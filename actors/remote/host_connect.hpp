// Connects to the other side, and listens for it. Hosts use it in host_connection (to join) and host_door (to be called),
// sessions in host_caller (to call) and host_hub (to be joined).
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/group/group_address.hpp"

namespace penstock::hosts {

/// Tries each address of the name. Blocks for at most `at_most` per address, plus the time that the system's resolver
/// takes. Gives up when `wake` becomes readable. Refuses (errc::io).
result<unique_fd> connect_to(const group::group_address& at, nanoseconds at_most, int wake = -1);

/// group::listen_at(), but refuses (errc::config) a numeric address that this machine does not have: listen_at() would
/// then listen on all addresses, including unintended networks.
result<unique_fd> listen_there(const group::group_address& at, std::chrono::seconds first_bytes_within);

}  // namespace penstock::hosts
