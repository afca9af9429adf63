// Handles Ctrl-C, SIGTERM and SIGHUP for our own programs: a library must leave signals alone. The first request asks for a clean
// shutdown, the second for a quick one. After the third the program should end at
// once; if it does not end within 2 s, its process is terminated.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace penstock::cli {

/// How long a program has after the third request, to write its files and to end by itself.
inline constexpr std::chrono::milliseconds given_up_after{2000};

/// What a program says when it is asked to stop.
struct stop_words {
  std::string first = "stopping: workers finish their sample";
  std::string again = "stop at once";  ///< what a second request does; empty: the same as the first
  /// What a program leaves behind when its process is terminated after the third request. Called
  /// on another thread, until stop_signals is destroyed; must not wait for anything.
  std::function<std::string()> left_behind{};
};

/// "process 4711 (systemd)"
[[nodiscard]] std::string process_in_words(pid_t pid);

/// Blocks SIGINT, SIGTERM and SIGHUP (unless ignored, as under nohup) in the calling thread and in all
/// threads that it starts later; create it first. Ignores SIGPIPE.
class stop_signals {
 public:
  explicit stop_signals(std::chrono::milliseconds patience = given_up_after);
  ~stop_signals();
  stop_signals(const stop_signals&) = delete;
  stop_signals& operator=(const stop_signals&) = delete;

  /// Calls `stop` with the number of the request, 1 to 3, on another thread. Unless this object is destroyed soon after the third, that
  /// thread ends the process: something does not respond, such as a disk, or the reader of the output.
  void listen(std::function<void(int times)> stop, stop_words said = {});
  /// Ends the calls: none is in progress when this returns, and none follows. The third request still ends the program.
  void ignore();
  /// During a call to `stop`: "SIGTERM from process 4711 (systemd)", for the session's record.
  [[nodiscard]] const std::string& asked_by() const noexcept { return asked_by_; }
  /// The first signal received; 0: none.
  [[nodiscard]] int received() const noexcept { return received_; }

 private:
  void run(const std::function<void(int)>& stop, const stop_words& said);
  void wait_for_the_end() const;

  const std::chrono::milliseconds patience_;
  std::atomic<int> received_{0};
  std::atomic<bool> over_{false};
  std::mutex calls_;  // held during a call to stop; guards ignored_
  bool ignored_ = false;
  std::string asked_by_;  // written by the thread
  std::thread thread_;
};

}  // namespace penstock::cli
