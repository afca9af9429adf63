// Detects user code that closes or replaces the descriptor of the worker's link. The session would see a worker that is silent for no
// reason; found at once, it is the fault of one sample. Used by the loader's lease_runner, after each sample of a custom dataset.
#pragma once

#include <sys/types.h>

#include <string_view>

namespace penstock::child {

class link_watch {
 public:
  explicit link_watch(int link);

  /// Whether the descriptor is still the link. One system call.
  [[nodiscard]] bool intact() const noexcept;
  /// Says what has closed it, and aborts the process while the flight recorder still names the sample.
  [[noreturn]] void abort_after(std::string_view work) const;

 private:
  int link_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace penstock::child
