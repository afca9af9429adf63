// Delays the session's SIGABRT (a job has exceeded its timeout or was cancelled) until the worker has killed
// the processes below it.
#pragma once

namespace penstock::job_worker {

/// While this object exists, a SIGABRT from another process only makes fd() readable; follow() or the
/// destructor delivers the signal. One object at a time. This process's own abort() works as usual. Does
/// nothing if no descriptors are free.
class abort_notice {
 public:
  abort_notice();
  ~abort_notice();
  abort_notice(const abort_notice&) = delete;
  abort_notice& operator=(const abort_notice&) = delete;

  /// Readable after a SIGABRT; -1 if no descriptors were free.
  [[nodiscard]] int fd() const noexcept;
  [[nodiscard]] bool has_come() const noexcept;
  /// Ends this process by SIGABRT.
  [[noreturn]] void follow() const;
};

}  // namespace penstock::job_worker
