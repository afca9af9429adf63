// Ensures that only one session uses a GPU ([gpu] share = false). The lock is an abstract socket name: the kernel gives
// it to one socket at a time and releases it when its holder ends for any reason. Thus there is no file to clean up.
// Used by the session once the device is known.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <string>

namespace penstock::device {

/// Holds the lock for its lifetime. Move-only. Only sessions in the same network namespace see each other (a container may have its own).
class exclusive_use {
 public:
  /// `session`: the name of the session that takes the lock. Refuses with errc::device_busy, naming the holder: the
  /// session if it is in this process, otherwise its pid.
  static result<exclusive_use> take(const std::string& uuid, const std::string& session);
  ~exclusive_use();
  exclusive_use(exclusive_use&&) noexcept = default;
  exclusive_use& operator=(exclusive_use&&) = delete;

 private:
  exclusive_use(unique_fd name, std::string uuid) : name_(std::move(name)), uuid_(std::move(uuid)) {}
  unique_fd name_;
  std::string uuid_;
};

}  // namespace penstock::device
