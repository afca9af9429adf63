// The log of `penstock map --job-log`: one line of JSON per job when it ends, with times, duration and
// outcome; the results are in the output. Lines are appended,
// so runs that share a journal can share the log, too.
//
//   {"time":"2026-11-22T04:17:02.330582Z","index":6,"status":"ok","attempts":1,"exit":0,"seconds":1.302,"text":null,"line":"cat.jpg",
//    "started":"2026-11-22T04:17:01.028171Z","signal":null}
#pragma once

#include "runtime/base/line_file.hpp"
#include "runtime/base/result.hpp"
#include "tools/penstock/jobs/job_outcome.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace penstock::cli {

/// A log line with its line feed. "exit" is null unless a command exited, "seconds" and "started" if no
/// attempt began, and "signal" unless a signal ended the last attempt; "text" is null for ok. Pure.
[[nodiscard]] std::string job_log_line(std::chrono::system_clock::time_point ended, std::uint64_t index,
                                       const job_outcome& outcome, std::string_view input_line);

class job_log {
 public:
  /// Opens the file; creates it if it is missing.
  static result<std::unique_ptr<job_log>> open(const std::string& path);
  /// Thread-safe.
  result<void> add(std::string_view line);

 private:
  job_log(std::string path, unique_fd file) : path_(std::move(path)), file_(std::move(file)) {}

  const std::string path_;
  line_file file_;
  std::mutex mutex_;  // guards file_
};

}  // namespace penstock::cli
