// Was it the kernel's OOM killer? A process that it ends dies of SIGKILL like one that somebody shot; the
// cgroup's own count of OOM kills tells them apart. Pure but for reading the count. One thread.
#pragma once

#include "runtime/base/clock.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace penstock::process {

/// The file that counts OOM kills in the memory cgroup of this process: memory.events (version 2) or
/// memory.oom_control (version 1). Nothing where there is none, in the root cgroup of version 2 for one.
/// `proc_cgroup` and `cgroup_root` are other files than the machine's only in tests.
std::optional<std::filesystem::path> oom_evidence_file(
    const std::filesystem::path& proc_cgroup = "/proc/self/cgroup",
    const std::filesystem::path& cgroup_root = "/sys/fs/cgroup");

class oom_watch {
 public:
  explicit oom_watch(std::optional<std::filesystem::path> evidence);

  /// Call now and then, so that kills of processes that are not ours are not held against a later death.
  void look(steady_time now);
  /// A child died of a SIGKILL that we did not send: did the OOM killer do it? Each counted kill explains
  /// one death.
  bool explains_death(steady_time now);

 private:
  [[nodiscard]] std::uint64_t count() const;

  std::optional<std::filesystem::path> evidence_;
  std::uint64_t counted_ = 0;
  std::uint64_t unexplained_ = 0;
  steady_time latest_{};
};

}  // namespace penstock::process
