// The first steps and the last one of a child process: used by worker_main and owner_main.
#pragma once

#include "runtime/arena/flight_recorder.hpp"
#include "runtime/process/lifeline.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>

namespace penstock::child {

// Exit codes (docs: exit codes of child processes).
inline constexpr int exit_finished = 0;
inline constexpr int exit_failed = 1;
inline constexpr int exit_temporary = 75;
inline constexpr int exit_configuration = 78;
inline constexpr int exit_poisoned = 79;
inline constexpr int exit_hardware = 80;
inline constexpr int exit_protocol = 82;
inline constexpr int exit_parent_lost = 83;

/// False, having said so on stderr, when no session started this program.
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
