// A file for a child's output, for callers that run the child to its end on one thread. Used by lone_worker,
// doctor and launch.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <string>

namespace penstock::process {

/// The child can write at most 1 MiB to it and never blocks on it. The file outlives the child.
class output_file {
 public:
  static result<output_file> create();
  [[nodiscard]] int fd() const noexcept { return file_.get(); }
  /// What has been written so far.
  [[nodiscard]] std::string text() const;

 private:
  explicit output_file(unique_fd file) noexcept : file_(std::move(file)) {}
  unique_fd file_;
};

/// The last non-empty line.
std::string last_line(const std::string& text);

}  // namespace penstock::process
