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
#include <vector>

namespace penstock::child {

/// Whether a session started this program. Looks for the link's descriptor at the first call and keeps the answer, because
/// workers later move the link to another descriptor.
[[nodiscard]] bool has_session();
/// Checks has_session() and performs the first steps of a session's child. Without a session: prints a
/// message to stderr and returns false.
[[nodiscard]] bool started_by_a_session(const char* what_this_is);

/// The dataset's index descriptors, inherited from the session: `count` of them, or one if `count` is 0. A mixture has
/// one index per dataset.
[[nodiscard]] std::vector<int> indexes(std::size_t count);

/// For workers, which can be replaced: when memory runs out, the kernel then kills this process, or programs
/// that it has started, before others. Otherwise the kernel would often choose the session or the GPU owner,
/// because they map the whole arena, although killing them frees little memory. A process may always raise
/// its own score. Does nothing without /proc.
void prefer_as_oom_victim() noexcept;

/// For workers on a loader host: ignores SIGTERM, which cluster schedulers send to all processes of a job at once. Only the
/// host reacts to it, and lets its workers finish their work (rule H9). Programs that they start get the usual disposition.
void leave_sigterm_to_the_host() noexcept;

/// Writes heartbeats to the flight recorder from the lifeline's thread. The session's first message names the
/// page; until then the start deadline applies.
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

/// Calls `when_sent`, which must call its argument once the kernel has accepted everything sent. Waits
/// briefly for that, then exits without running destructors: threads and objects left by user code may not be
/// safe to destroy, and the session only waits for the process to exit.
[[noreturn]] void leave(int exit_code, const std::function<void(std::function<void()>)>& when_sent);

}  // namespace penstock::child
