// Tells whether an object is used in the process that made it or in a forked child, where its threads do not
// exist and its locks may be held forever. Used by sessions, pools, groups, and the handles that they give out.
#pragma once

#include <penstock/error.hpp>

#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace penstock {

/// Each query costs one getpid. pthread_atfork would miss clone() and libraries loaded later.
class home_process {
 public:
  [[nodiscard]] bool left() const noexcept { return ::getpid() != pid_; }
  /// Throws error (errc::usage) in a forked child. `what`: the kind of object, for the message.
  void require(std::string_view what) const {
    if (!left()) return;
    throw error({errc::usage,
                 "this " + std::string(what) + " belongs to process " + std::to_string(pid_) + ", from which this one was forked", 0});
  }

 private:
  const pid_t pid_ = ::getpid();
};

}  // namespace penstock
