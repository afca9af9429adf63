// Tells whether an object is used in the process that made it or in a forked child, where its threads do not
// exist and its locks may be held forever. Used by sessions and batches.
#pragma once

#include <sys/types.h>
#include <unistd.h>

namespace penstock {

/// Each query costs one getpid. Not pthread_atfork, which misses clone() and libraries loaded later.
class home_process {
 public:
  [[nodiscard]] bool left() const noexcept { return ::getpid() != pid_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  const pid_t pid_ = ::getpid();
};

}  // namespace penstock
