// Knows whether this process is the one that an object was made in, or a forked copy: there the object's
// threads do not exist and its locks may be held for ever. Used by what embedding programs hold: sessions and
// batches.
#pragma once

#include <sys/types.h>
#include <unistd.h>

namespace penstock {

/// Costs one getpid a question. Not pthread_atfork: that sees neither clone() nor a library that is loaded
/// later.
class home_process {
 public:
  [[nodiscard]] bool left() const noexcept { return ::getpid() != pid_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  const pid_t pid_ = ::getpid();
};

}  // namespace penstock
