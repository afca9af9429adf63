// Facts about a process from /proc: its private memory, its
// parent, whether a debugger is attached, and where it waits.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::process {

struct process_facts {
  std::uint64_t rss_anon_bytes = 0;  ///< private memory of this process
  std::uint64_t rss_bytes = 0;       ///< including shared memory and files
  bool traced = false;
  pid_t parent = 0;
};

/// Empty if the process is gone.
std::optional<process_facts> look_at(pid_t pid);

/// Resident memory of this process; cheap enough for every heartbeat.
std::uint64_t own_rss_bytes();

/// What a thread is doing: "running", suspended_channel (by SIGSTOP, or held by a debugger), the kernel function it waits in
/// ("futex_wait_queue", "folio_wait_bit") or just "sleeping"; empty if the thread is gone. `thread` 0: the first one.
std::string wait_channel(pid_t pid, pid_t thread = 0);

/// Running totals of a thread. While the thread waits for something other than a core, neither of them grows.
struct thread_times {
  std::chrono::nanoseconds cpu{0};
  /// How long the thread could run, but had no core; 0 if the kernel does not count it.
  std::chrono::nanoseconds core_wait{0};
};
/// Empty if the thread is gone. `thread` 0: the first one. Cheap, and never blocks on the process.
std::optional<thread_times> times_of(pid_t pid, pid_t thread = 0);

/// How a process uses the GPU: "libcuda.so.1 is mapped", "/dev/nvidia0 is open"; empty if it does not (or is
/// gone, or belongs to another user).
std::optional<std::string> gpu_use_of(pid_t pid);

/// All living descendants of a process.
std::vector<pid_t> descendants_of(pid_t pid);

/// How many cores' worth of CPU time this process and its children may use, by its affinity and the CPU quota of its cgroups: 0.5
/// with a quota of half a core.
double usable_cpu(const std::filesystem::path& root = "/");

/// The number of cores that this process may use, by its affinity and the CPU quota of its cgroups. At least
/// 1. With another root, reads the files of /proc and /sys below it.
std::uint32_t usable_cores(const std::filesystem::path& root = "/");

}  // namespace penstock::process
