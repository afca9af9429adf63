// The progress of a run: a bar on a terminal, an occasional plain line elsewhere. Reads the session's status
// on a separate thread, so it continues while the consumer waits.
#pragma once

#include <penstock/report.hpp>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace penstock::cli {

/// One line about a run: "epoch 1/3  [====>     ] 42 %  1234 samples/s  eta 12 s  4 workers". Pure.
[[nodiscard]] std::string progress_line(const session_status& now, const session_status& before,
                                        double seconds_between, std::size_t width, bool with_bar);

class progress_display {
 public:
  /// Calls `look` several times a second until destroyed. Log lines on stderr meanwhile appear above the bar.
  explicit progress_display(std::function<session_status()> look);
  ~progress_display();
  progress_display(const progress_display&) = delete;
  progress_display& operator=(const progress_display&) = delete;

 private:
  void run();
  void clear();

  std::function<session_status()> look_;
  const bool terminal_;
  std::mutex mutex_;  // guards the line on the screen
  std::condition_variable over_signal_;
  bool over_ = false;
  bool drawn_ = false;
  std::thread thread_;
};

}  // namespace penstock::cli
