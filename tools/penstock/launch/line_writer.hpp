// Writes the ranks' lines to our stdout and stderr on a separate thread, so that a paused terminal or an
// unread pipe does not delay the end of a group.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace penstock::cli {

class line_writer {
 public:
  /// The writer's thread calls `room` when it has written a backlog of more than backlog_max.
  explicit line_writer(std::function<void()> room);
  /// Writes the rest. Blocks until the reader has taken it.
  ~line_writer();
  line_writer(const line_writer&) = delete;
  line_writer& operator=(const line_writer&) = delete;

  /// Queues text with its line ends, and writes it at once if the reader keeps up. Any thread; never blocks.
  /// Ignores errors (a closed pipe), as everywhere in the CLI.
  void write(int fd, std::string text);
  /// Whether the backlog is too large: stop reading until `room` is called.
  [[nodiscard]] bool full() const;

  static constexpr std::size_t backlog_max = 1 << 20;  ///< bytes

 private:
  void run();

  const std::function<void()> room_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::pair<int, std::string>> waiting_;
  std::size_t bytes_ = 0;  // the size of waiting_ and of the text being written
  bool was_full_ = false;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace penstock::cli
