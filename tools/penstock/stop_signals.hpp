// Handles Ctrl-C, SIGTERM and SIGHUP: the first requests a clean shutdown, the second a quick one, the third
// ends the program. A SIGHUP after another signal is ignored. Only for our own programs: a library must leave
// signals alone.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace penstock::cli {

/// Blocks SIGINT, SIGTERM and SIGHUP (unless ignored, as under nohup) in the calling thread and in all
/// threads that it starts later; create it first. Ignores SIGPIPE.
class stop_signals {
 public:
  stop_signals();
  ~stop_signals();
  stop_signals(const stop_signals&) = delete;
  stop_signals& operator=(const stop_signals&) = delete;

  /// Calls `stop(1)` at the first signal and `stop(2)` at the second, on another thread.
  /// Prints `first_words` at the first signal.
  void listen(
      std::function<void(int times)> stop,
      std::string first_words = "stopping: workers finish their sample (press again to stop at once)");
  /// No call is in progress when this returns, and none follows: the first two signals now have no effect.
  /// The third still ends the program, which may be waiting for a reader of its output.
  void ignore();
  /// In a call of `stop`: "SIGTERM from process 4711 (systemd)", for the session's record.
  [[nodiscard]] const std::string& asked_by() const noexcept { return asked_by_; }
  /// The first signal received; 0: none.
  [[nodiscard]] int received() const noexcept { return received_; }

 private:
  void run(const std::function<void(int)>& stop, const std::string& first_words);

  std::atomic<int> received_{0};
  std::atomic<bool> over_{false};
  std::mutex calls_;  // held during a call of stop; guards ignored_
  bool ignored_ = false;
  std::string asked_by_;  // written by the thread
  std::thread thread_;
};

}  // namespace penstock::cli
