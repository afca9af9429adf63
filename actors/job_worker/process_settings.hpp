// Restores process settings between jobs (rule J18): the environment, the working directory, the signal mask,
// the umask and the resource limits. Used by the job_runner.
//
// A check costs 17 cheap system calls (2 to 3 us, tests/actors/job_worker/job_cost.cpp) and allocates only if
// something has changed. Signal handlers, timers, open files and memory are not covered.
#pragma once

#include "runtime/base/fd.hpp"

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <csignal>
#include <string>
#include <vector>

namespace penstock::job_worker {

/// At most one per process. It must live until the process exits, because `environ` points into it.
class process_settings {
 public:
  static constexpr std::size_t limits = 14;

  /// Records the current settings. Call before any thread that reads the environment exists.
  process_settings();
  ~process_settings();
  process_settings(const process_settings&) = delete;
  process_settings& operator=(const process_settings&) = delete;

  /// Restores all settings. False: one cannot be restored (a lowered hard limit, a working directory that is
  /// no longer accessible), and this process must run no more jobs.
  [[nodiscard]] bool restore() noexcept;
  /// Call after restore() has returned false. Returns what could not be restored, as text ("the limit on open
  /// files").
  [[nodiscard]] const char* lost() const noexcept { return lost_; }

 private:
  bool restore_limits() noexcept;
  void restore_environment() noexcept;

  // The environment as one block, compared in one go. Any change replaces a pointer or changes a byte in the
  // block.
  std::string block_;
  const std::string saved_block_;
  std::vector<char*> pointers_;
  const std::vector<char*> saved_pointers_;

  unique_fd folder_;  // the working directory; empty if it had already been removed
  sigset_t signals_{};
  mode_t umask_ = 0;
  std::array<rlimit, limits> limits_{};
  const char* lost_ = "";
};

}  // namespace penstock::job_worker
