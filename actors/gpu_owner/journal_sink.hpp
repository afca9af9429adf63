// `--sink journal:PATH`: what was delivered and in which order, one JSON object a line, appended to a file.
// For those who compare streams: `penstock chaos`, scripts.
//
//   {"owner":4127}                                                          a process begins to deliver
//   {"owner":4127,"epoch":0,"batch":3,"samples":[17,4],"digest":"9f3c..."}  it has taken this batch
//
// The process may be killed at any moment, in the middle of a line too: each line is one write at the end of
// the file, and a process that finds half a line there ends it with a line feed of its own. Half an object is
// not JSON, so nobody takes it for a batch. A batch whose acknowledgement died with its owner is there twice,
// the second time under the next owner. Nothing is synced: it is as durable as the machine is up.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <penstock/batch.hpp>

#include <string>

namespace penstock::gpu_owner {

class journal_sink {
 public:
  /// Appends to the file, and makes it if it is missing. Refuses with errc::sink.
  static result<journal_sink> open(const std::string& path);

  result<void> write(const Batch& batch) const;

 private:
  journal_sink(unique_fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  [[nodiscard]] result<void> append(const std::string& line) const;

  unique_fd file_;
  std::string path_;
};

}  // namespace penstock::gpu_owner
