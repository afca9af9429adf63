// Connects to the other side of a connection. Used by host_connection (hosts that join) and host_caller (sessions that call).
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/group/group_address.hpp"

namespace penstock::hosts {

/// Tries each address of the name. Blocks: for at most `at_most` an address, and for as long as the system's resolver
/// needs. Gives up when `wake` becomes readable. Refuses (errc::io).
result<unique_fd> connect_to(const group::group_address& at, nanoseconds at_most, int wake = -1);

}  // namespace penstock::hosts
