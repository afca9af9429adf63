// The first steps and the last one of a child process: used by worker_main and owner_main.
#pragma once

#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/process/lifeline.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>

namespace penstock::child {

/// Whether a session started this program: its link is there.
[[nodiscard]] bool has_session();
/// has_session(), and what a child of a session does first; false, having said so on stderr, without one.
[[nodiscard]] bool started_by_a_session(const char* what_this_is);

/// Beats in the flight recorder from the lifeline's thread. Which page is ours is known only when the session
/// has said who we are; until then the start deadline watches.
class heart {
 public:
  heart();
  /// Idempotent.
  void adopt(std::uint32_t page);

 private:
  void beat();

  std::unique_ptr<arena::flight_writer> storage_;
  std::atomic<arena::flight_writer*> page_{nullptr};
  process::lifeline_guard guard_;
};

/// Calls `when_sent` with a function to be called when everything that was said is with the kernel, waits for
/// that a moment, and ends the process without destructors: user code may have left threads and objects
/// behind whose destruction nobody has tested, and the session only waits for the end of the process.
[[noreturn]] void leave(int exit_code, const std::function<void(std::function<void()>)>& when_sent);

}  // namespace penstock::child
