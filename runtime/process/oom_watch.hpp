// Detects kills by the kernel's OOM killer. A process that it kills dies of SIGKILL, like any killed process.
// The cgroup's count of OOM kills tells the difference. Pure except for reading the count. Not thread-safe.
#pragma once

#include "runtime/base/running_clock.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace penstock::process {

/// The file that counts OOM kills in the memory cgroup of this process: memory.events (version 2) or
/// memory.oom_control (version 1). Empty if there is none, for example in the root cgroup of version 2.
/// With another root, looks at the files below it.
std::optional<std::filesystem::path> oom_evidence_file(const std::filesystem::path& root = "/");

class oom_watch {
 public:
  explicit oom_watch(std::optional<std::filesystem::path> evidence);

  /// Reads the count. Call about once a second, so that a later death is not attributed to an earlier OOM
  /// kill of another process.
  void look(steady_time now);
  /// Whether the kernel counts OOM kills where we can read it.
  [[nodiscard]] bool counts() const noexcept { return evidence_.has_value(); }
  /// Whether the OOM killer explains the death of a child by a SIGKILL
  /// that we did not send. Each counted kill explains one death.
  bool explains_death(steady_time now);

 private:
  [[nodiscard]] std::uint64_t count() const;

  std::optional<std::filesystem::path> evidence_;
  std::uint64_t counted_ = 0;
  std::uint64_t unexplained_ = 0;
  // Does not count time during which this process was suspended between a count and the death that it explains.
  running_clock clock_{{}, std::chrono::milliseconds(500)};
  steady_time latest_{};
};

}  // namespace penstock::process
