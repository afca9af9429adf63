// The launcher's end of a rank's channel: reads its lines (rank_progress.hpp).
#pragma once

#include "runtime/base/fd.hpp"
#include "tools/penstock/launch/rank_progress.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <memory>
#include <string>

namespace penstock::cli {

/// Construct, use and destroy on the io thread. Stops reading after a line that is not ours.
class rank_news {
 public:
  rank_news(boost::asio::io_context& io, unique_fd channel, std::function<void(const rank_progress&)> heard);
  rank_news(const rank_news&) = delete;
  rank_news& operator=(const rank_news&) = delete;

  /// Sends the rank a line, unless it has not read the earlier ones or is gone.
  void send(const std::string& line);
  /// Call when the rank is gone: reads what it sent before.
  void finish();

 private:
  void wait();
  [[nodiscard]] bool read();
  void take_lines();

  boost::asio::posix::stream_descriptor channel_;
  std::function<void(const rank_progress&)> heard_;
  std::string text_;                                        // an incomplete line
  std::shared_ptr<void> alive_ = std::make_shared<char>();  // a read may complete after our destruction
};

}  // namespace penstock::cli
