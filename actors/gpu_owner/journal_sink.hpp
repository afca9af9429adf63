// `--sink journal:PATH`: appends to a file which batches were delivered and in which order, one JSON object
// per line. For comparing streams: `penstock chaos`, scripts.
//
//   {"owner":4127}                                                          a process begins to deliver
//   {"owner":4127,"epoch":0,"batch":3,"samples":[17,4],"digest":"9f3c..."}  it has taken this batch
//
// The process may be killed at any moment, even in the middle of a line. Each line is one append, and a
// process that finds an incomplete line ends it with a line feed. An incomplete object is not JSON, so no
// reader mistakes it for a batch. If an acknowledgement is lost because its owner died, the batch appears
// twice, the second time under the next owner. The file is not synced: the journal survives crashes of the
// process but not of the machine.
#pragma once

#include "runtime/base/line_file.hpp"
#include "runtime/base/result.hpp"

#include <penstock/batch.hpp>

#include <string>

namespace penstock::gpu_owner {

class journal_sink {
 public:
  /// Opens the file for appending; creates it if it is missing. Refuses with errc::sink.
  static result<journal_sink> open(const std::string& path);

  result<void> write(const Batch& batch);

 private:
  journal_sink(unique_fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  [[nodiscard]] result<void> append(const std::string& line);

  line_file file_;
  std::string path_;
};

}  // namespace penstock::gpu_owner
