// What /proc says about a process: how much private memory it uses, whether a debugger holds it, where it
// waits.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace penstock::process {

struct process_facts {
  std::uint64_t rss_anon_bytes = 0;  ///< private memory: what this process alone costs
  std::uint64_t rss_bytes = 0;       ///< with shared memory and files
  bool traced = false;
};

/// Nothing when the process is gone.
std::optional<process_facts> look_at(pid_t pid);

/// Resident memory of this process, cheap enough for every heartbeat.
std::uint64_t own_rss_bytes();

/// Where a thread stands: "running", "stopped", the kernel function it waits in ("futex_wait_queue",
/// "folio_wait_bit") or just "sleeping"; empty if the thread is gone. `thread` 0: the first one.
std::string wait_channel(pid_t pid, pid_t thread = 0);

/// What of the GPU a process holds: "libcuda.so.1 is mapped", "/dev/nvidia0 is open"; nothing if it holds
/// none (or is gone, or is another user's).
std::optional<std::string> gpu_use_of(pid_t pid);

/// A process's living children, theirs, and so on.
std::vector<pid_t> descendants_of(pid_t pid);

/// Cores that this process may use: affinity, and the CPU quota of its cgroups. At least 1. With another root
/// the files of /proc and /sys below it decide.
std::uint32_t usable_cores(const std::filesystem::path& root = "/");

}  // namespace penstock::process
