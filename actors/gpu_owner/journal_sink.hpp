// `--sink journal:PATH`: what was delivered and in which order, one JSON object per line, appended to a file.
// For comparing streams: `penstock chaos`, scripts.
//
//   {"owner":4127}                                                          a process begins to deliver
//   {"owner":4127,"epoch":0,"batch":3,"samples":[17,4],"digest":"9f3c..."}  it has taken this batch
//
// The process may be killed at any moment, even in the middle of a line: each line is one append, and a
// process that finds half a line terminates it with a line feed. Half an object is not JSON, so no reader
// mistakes it for a batch. A batch whose acknowledgement died with its owner appears twice, the second time
// under the next owner. Nothing is synced: the journal survives crashes of the process but not of the
// machine.
#pragma once

#include "runtime/base/line_file.hpp"
#include "runtime/base/result.hpp"

#include <penstock/batch.hpp>

#include <string>

namespace penstock::gpu_owner {

class journal_sink {
 public:
  /// Appends to the file and creates it if it is missing. Refuses with errc::sink.
  static result<journal_sink> open(const std::string& path);

  result<void> write(const Batch& batch);

 private:
  journal_sink(unique_fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  [[nodiscard]] result<void> append(const std::string& line);

  line_file file_;
  std::string path_;
};

}  // namespace penstock::gpu_owner
