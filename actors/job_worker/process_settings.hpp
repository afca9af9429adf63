// What a job may change about its process and the next job must not find changed (semantics 49): the environment, the
// working directory, the signal mask, the umask and the resource limits. Used by the job_runner, between any two jobs.
//
// Looking costs 17 system calls of the cheapest kind (2 to 3 us, tests/actors/job_worker/job_cost.cpp); nothing is
// allocated unless something was changed. Signal handlers, timers, open files and memory are not covered.
#pragma once

#include "runtime/base/fd.hpp"

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <csignal>
#include <string>
#include <vector>

namespace penstock::job_worker {

/// One at a time in a process, for as long as the process lives: `environ` points into it.
class process_settings {
 public:
  static constexpr std::size_t limits = 14;

  /// As they are now. Before there are threads that read the environment.
  process_settings();
  ~process_settings();
  process_settings(const process_settings&) = delete;
  process_settings& operator=(const process_settings&) = delete;

  /// Everything is again as it was; nothing is asked of whoever changed it. False: something cannot be set back (a hard
  /// limit that was lowered, a working directory that may not be entered any more); only another process can go on.
  [[nodiscard]] bool restore() noexcept;
  /// After restore() has said no: "the limit on open files", for a person.
  [[nodiscard]] const char* lost() const noexcept { return lost_; }

 private:
  bool restore_limits() noexcept;
  void restore_environment() noexcept;

  // The environment as one block that is compared as one block. What a program changes is a pointer, or a byte of it.
  std::string block_;
  const std::string saved_block_;
  std::vector<char*> pointers_;
  const std::vector<char*> saved_pointers_;

  unique_fd folder_;  // none: it was gone already
  sigset_t signals_{};
  mode_t umask_ = 0;
  std::array<rlimit, limits> limits_{};
  const char* lost_ = "";
};

}  // namespace penstock::job_worker
