// The output of a command to one of its descriptors: kept in memory up to a limit, or written to a file by
// the command itself.
#pragma once

#include "actors/protocol/command_job.hpp"
#include "runtime/base/fd.hpp"

#include <cstdint>
#include <string>

namespace penstock::job_worker {

class captured_output {
 public:
  /// `most`: how many bytes to keep.
  explicit captured_output(std::uint64_t most) : most_(most) {}

  /// Opens the file, or a pipe if `file` is empty. Replaces an existing file: processes that still write to
  /// it keep the old one. Returns 0 or an errno.
  [[nodiscard]] int open(const std::string& file);
  [[nodiscard]] int command_end() const { return write_.get(); }
  void close_command_end() { write_.reset(); }
  /// The descriptor to poll; -1 after the end of the pipe, and for a file.
  [[nodiscard]] int fd() const { return read_.get(); }

  /// Reads what is available. Also reads and drops output beyond the limit: the command must not block on a
  /// full pipe.
  void take();
  /// Call when the command has exited: reads the rest of the pipe, or the beginning of the file.
  protocol::command_output finish();

 private:
  void read_file();

  std::uint64_t most_;
  unique_fd read_;
  unique_fd write_;
  unique_fd file_;
  protocol::command_output output_;
};

}  // namespace penstock::job_worker
