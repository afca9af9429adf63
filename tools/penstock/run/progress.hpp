// Shows the progress of a run: a bar on a terminal, an occasional plain line elsewhere. Runs on its own
// thread, so it continues while the consumer waits. Used by `run` and `map`.
#pragma once

#include <penstock/report.hpp>

#include <chrono>
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

/// "[====>     ]", with `cells` characters between the brackets.
[[nodiscard]] std::string progress_bar(double share, std::size_t cells = 20);
/// "  8 s left"; empty if nothing is left, or the rate is 0.
[[nodiscard]] std::string time_left(double left, double rate);
/// "1 sample/s", "250 samples/s".
[[nodiscard]] std::string rate_for_people(double per_second, std::string_view noun);

/// Returns the line to show. Called on one thread; `with_bar` on a terminal.
using progress_source = std::function<std::string(std::size_t width, bool with_bar)>;

/// Lines that compare the current status with one from a few seconds ago, so that rates cover the last few
/// seconds rather than the whole run.
template <class Status>
progress_source compared(std::function<Status()> look,
                         std::function<std::string(const Status& now, const Status& before,
                                                   double seconds_between, std::size_t width, bool with_bar)>
                             words) {
  using clock = std::chrono::steady_clock;
  return [look, words, before = look(), before_at = clock::now()](std::size_t width, bool with_bar) mutable {
    const Status now = look();
    const auto now_at = clock::now();
    const double seconds = std::chrono::duration<double>(now_at - before_at).count();
    const std::string line = words(now, before, seconds, width, with_bar);
    if (seconds > 3) {
      before = now;
      before_at = now_at;
    }
    return line;
  };
}

class progress_display {
 public:
  /// Calls `source` several times a second until destroyed. Log lines written to stderr meanwhile appear
  /// above the bar.
  explicit progress_display(progress_source source);
  ~progress_display();
  progress_display(const progress_display&) = delete;
  progress_display& operator=(const progress_display&) = delete;

 private:
  void run();
  void clear();

  progress_source source_;
  const bool terminal_;
  std::mutex mutex_;  // guards the line on the screen
  std::condition_variable over_signal_;
  bool over_ = false;
  bool drawn_ = false;
  std::thread thread_;
};

}  // namespace penstock::cli
