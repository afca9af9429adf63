// The first steps and the last step of a child process. Used by worker_main and owner_main.
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

/// Whether a session started this program: it has a link.
[[nodiscard]] bool has_session();
/// has_session(), and what a child of a session does first. Without a session: says so on stderr and returns false.
[[nodiscard]] bool started_by_a_session(const char* what_this_is);

/// Writes heartbeats to the flight recorder from the lifeline's thread. Our page is known only once the session has
/// told us who we are; until then the start deadline applies.
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

/// Calls `when_sent` with a function to call when the kernel has everything that was sent, waits briefly for that, and
/// exits without destructors: user code may have left threads and objects behind whose destruction nobody has tested,
/// and the session only waits for the process to end.
[[noreturn]] void leave(int exit_code, const std::function<void(std::function<void()>)>& when_sent);

}  // namespace penstock::child
