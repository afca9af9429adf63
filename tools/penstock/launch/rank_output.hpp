// Reads a rank's output line by line, adds the rank as a prefix, and writes it to our own stdout and stderr.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/process/child_process.hpp"
#include "tools/penstock/launch/line_writer.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <memory>
#include <string>

namespace penstock::cli {

/// One pipe of a rank. Construct, use and destroy on the io thread. Cuts lines longer than
/// output_tail::line_max.
class rank_output {
 public:
  rank_output(boost::asio::io_context& io, unique_fd pipe, int to, std::string prefix, line_writer& writer);
  rank_output(const rank_output&) = delete;
  rank_output& operator=(const rank_output&) = delete;

  /// Continues reading when the writer has room again. While the writer is full, the pipe is not read, so a rank that writes too fast
  /// waits, as it would without us.
  void resume();
  /// Call when the rank is gone: reads the rest of the pipe.
  void finish();
  [[nodiscard]] std::string last_lines(std::size_t count) const { return tail_.last_lines(count); }

 private:
  void wait();
  [[nodiscard]] bool read();
  void show(std::string_view line);

  boost::asio::posix::stream_descriptor pipe_;
  const int to_;
  const std::string prefix_;
  line_writer& writer_;
  process::output_tail tail_;
  std::string lines_;  // lines of one read
  bool paused_ = false;
  std::shared_ptr<void> alive_ = std::make_shared<char>();  // a read may complete after our destruction
};

}  // namespace penstock::cli
