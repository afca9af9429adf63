// Startup and exit of a child process. Used by worker_main and owner_main.
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
/// Checks has_session() and does the first steps of a session's child. Without a session: prints a message to
/// stderr and returns false.
[[nodiscard]] bool started_by_a_session(const char* what_this_is);

/// For workers, which can be replaced: asks the kernel to kill this process, and programs that it starts, before others when
/// memory runs out. Without that it would often take the session or the GPU owner, which map the whole arena, and
/// killing them frees little. Raising one's own score is always allowed; without /proc nothing happens.
void prefer_as_oom_victim() noexcept;

/// Writes heartbeats to the flight recorder from the lifeline's thread. The page is known only after the
/// session's first message; until then the start deadline applies.
class heartbeat {
 public:
  heartbeat();
  /// Idempotent.
  void adopt(std::uint32_t page);

 private:
  void beat();

  std::unique_ptr<arena::flight_writer> storage_;
  std::atomic<arena::flight_writer*> page_{nullptr};
  process::lifeline_guard guard_;
};

/// Calls `when_sent`, which must call its argument once the kernel has everything that was sent. Waits
/// briefly for that, then exits without running destructors: threads and objects left by user code may not be
/// safe to destroy, and the session waits only for the process to end.
[[noreturn]] void leave(int exit_code, const std::function<void(std::function<void()>)>& when_sent);

}  // namespace penstock::child
