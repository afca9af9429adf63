// Detects user code that closes or replaces the descriptor of the worker's link. Otherwise the session would only see that the
// worker has gone silent; detected at once, the fault can be blamed on one sample. Used by the loader, after each step of a
// custom dataset.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string_view>

namespace penstock::child {

class link_watch {
 public:
  /// `open`: returns false once penstock itself has closed the link. Called by the thread that calls lost().
  link_watch(int link, std::function<bool()> open);

  /// Whether the descriptor is no longer the link. One system call.
  [[nodiscard]] bool lost() const;
  /// Prints that `work` closed the link, and aborts the process while the flight recorder still names that
  /// work.
  [[noreturn]] void abort_after(std::string_view work) const;

 private:
  [[nodiscard]] bool is_link() const noexcept;

  int link_;
  std::function<bool()> open_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace penstock::child
