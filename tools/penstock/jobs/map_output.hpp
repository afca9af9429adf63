// The output of `penstock map`: stdout, or a file that only one run at a time writes. The file is emptied only when the run can no longer
// be refused.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <string>

namespace penstock::cli {

class map_output {
 public:
  /// "-" is stdout. Creates a missing file; keeps the contents of an existing one. Refuses a regular file
  /// that another run is writing.
  static result<map_output> open(const std::string& path);

  /// Empties the output if it is a regular file that was given by its path.
  result<void> empty();

  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// "'out.jsonl'", "stdout".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_ = "stdout";
  unique_fd own_;
  int fd_ = 1;
  bool is_regular_file_ = false;
};

/// Refuses to write to a file that the run also reads: that would destroy the input or never end. `journal`
/// and `job_log` may be empty.
result<void> check_different(int input, int output, const std::string& journal, const std::string& job_log);

}  // namespace penstock::cli
