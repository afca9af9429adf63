#include "tools/penstock/launch/line_writer.hpp"

#include "runtime/base/write_all.hpp"

#include <span>

namespace penstock::cli {

line_writer::line_writer(std::function<void()> room) : room_(std::move(room)), thread_([this] { run(); }) {}

line_writer::~line_writer() {
  {
    const std::lock_guard hold(mutex_);
    over_ = true;
  }
  news_.notify_one();
  thread_.join();
}

void line_writer::write(int fd, std::string text) {
  {
    const std::lock_guard hold(mutex_);
    bytes_ += text.size();
    was_full_ = was_full_ || bytes_ > backlog_max;
    // Adjacent texts for the same descriptor become one write.
    if (!waiting_.empty() && waiting_.back().first == fd) {
      waiting_.back().second += text;
    } else {
      waiting_.emplace_back(fd, std::move(text));
    }
  }
  news_.notify_one();
}

bool line_writer::full() const {
  const std::lock_guard hold(mutex_);
  return bytes_ > backlog_max;
}

void line_writer::run() {
  std::unique_lock hold(mutex_);
  while (true) {
    news_.wait(hold, [this] { return over_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const auto [fd, text] = std::move(waiting_.front());
    waiting_.pop_front();
    hold.unlock();
    static_cast<void>(write_all(fd, std::as_bytes(std::span(text))));
    hold.lock();
    bytes_ -= text.size();
    if (was_full_ && bytes_ <= backlog_max) {
      was_full_ = false;
      hold.unlock();
      room_();
      hold.lock();
    }
  }
}

}  // namespace penstock::cli
