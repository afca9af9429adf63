// One session per GPU ([gpu] share = false). The lock is an abstract socket name: the kernel gives it to one
// socket at a time and releases it when its holder ends for any reason. No file, nothing to clean up. Used by
// the session once the device is known.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <string>

namespace penstock::device {

/// Holds the lock for its lifetime. Move-only. Sessions see each other within one network namespace (a
/// container may have one of its own).
class exclusive_use {
 public:
  /// Refuses with errc::device_busy, naming the pid of the session that has it.
  static result<exclusive_use> take(const std::string& uuid);

 private:
  explicit exclusive_use(unique_fd name) : name_(std::move(name)) {}
  unique_fd name_;
};

}  // namespace penstock::device
