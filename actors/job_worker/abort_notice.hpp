// The session's wish that this worker die (SIGABRT: a job's time is up, or it was cancelled), put off until the worker has
// killed what runs below it.
#pragma once

namespace penstock::job_worker {

/// While it exists a SIGABRT from another process only makes fd() readable; follow(), or its end, delivers the signal. One
/// at a time. abort() of this process works as ever. Without descriptors it does nothing.
class abort_notice {
 public:
  abort_notice();
  ~abort_notice();
  abort_notice(const abort_notice&) = delete;
  abort_notice& operator=(const abort_notice&) = delete;

  /// Readable when a SIGABRT has come; -1 without descriptors.
  [[nodiscard]] int fd() const noexcept;
  [[nodiscard]] bool has_come() const noexcept;
  /// Dies of SIGABRT.
  [[noreturn]] void follow() const;
};

}  // namespace penstock::job_worker
