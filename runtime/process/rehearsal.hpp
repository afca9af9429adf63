// Faults that cannot be committed from outside, for rehearsals: a worker that hangs, exits or leaks in the
// middle of whatever it does. `penstock chaos` sends them; a worker takes them only when PENSTOCK_CHAOS=1 is
// in its environment. SIGRTMIN + 5, with what is to happen as its value.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace penstock::process {

enum class rehearsed_fault : std::uint8_t { hang = 1, exit = 2, leak = 3 };

/// Worker: accept them, if the environment says so.
void accept_rehearsed_faults();

/// A signal to a child of this process and to nobody else: false when it is gone, even if its number belongs
/// to another process by now.
bool strike_child(pid_t child, int signal) noexcept;

/// The same with a fault that the worker commits itself. `megabytes` of private memory for a leak.
bool rehearse(pid_t worker, rehearsed_fault fault, std::uint32_t megabytes = 0) noexcept;

}  // namespace penstock::process
