// Fault injection for what cannot be caused from outside: a worker that hangs, exits or leaks in the middle
// of its work. `penstock chaos` sends these faults; a worker accepts them only with PENSTOCK_CHAOS=1 in its
// environment. The signal is SIGRTMIN + 5, and its value says which fault. The session remembers which
// signals it sent to which child until it has read how the child ended. Thread-safe.
#pragma once

#include "runtime/base/exit_report.hpp"

#include <sys/types.h>

#include <cstdint>

namespace penstock::process {

enum class injected_fault : std::uint8_t { hang = 1, exit = 2, leak = 3 };

/// For workers: accepts faults from now on, if the environment allows it.
void accept_injected_faults();

/// Sends a signal to a child of this process and to no other process. Returns
/// false if the child is gone, even if its number now belongs to another process.
bool signal_child(pid_t child, int signal);

/// Whether a signal of signal_child() has ended this child. Forgets the child, because
/// its number may be reused.
[[nodiscard]] bool was_injected(pid_t child, const exit_report& end);

/// Like signal_child(), but the signal tells the worker to cause this fault itself. `megabytes`: private memory
/// to leak.
bool inject_fault(pid_t worker, injected_fault fault, std::uint32_t megabytes = 0) noexcept;

}  // namespace penstock::process
