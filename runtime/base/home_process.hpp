// Tells whether an object is used in the process that made it or in a forked child. In a child, the object's
// threads do not exist and its locks may be held forever. Used by sessions, pools, groups, the handles that
// they give out, and workers that run jobs.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

namespace penstock {

/// A query costs one load: the process keeps its id in a page that the kernel clears in each child (MADV_WIPEONFORK).
/// Without that page, a query calls getpid. Children of clone() are recognised, too; pthread_atfork would miss them.
/// A child that shares its parent's memory (vfork) counts as the parent.
class home_process {
 public:
  home_process() noexcept;

  [[nodiscard]] bool left() const noexcept { return (here_ != nullptr ? here_->load(std::memory_order_relaxed) : ::getpid()) != pid_; }
  /// Throws error (errc::usage) in a forked child. `what`: the kind of object, for the message.
  void require(std::string_view what) const {
    if (left()) refuse(what);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const;

  pid_t pid_;
  const std::atomic<pid_t>* here_;  // null without the page; its value is 0 in a child that has made no home_process yet
};

}  // namespace penstock
