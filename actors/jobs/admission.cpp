#include "actors/jobs/admission.hpp"

#include "runtime/base/units.hpp"

namespace penstock::jobs {

bool admission::fits(std::uint64_t bytes) const {
  const std::uint64_t held = counts_.argument_bytes + counts_.result_bytes;
  return counts_.waiting < queue_ && held <= memory_ && bytes <= memory_ - held;
}

result<void> admission::possible(std::uint64_t bytes) const {
  if (closed_) return tl::unexpected(*closed_);
  if (bytes <= memory_) return {};
  return refuse(errc::out_of_memory,
                "submitting a job with an argument of {}: [jobs] memory is {}; raise it, or submit less",
                bytes_for_people(bytes), bytes_for_people(memory_));
}

result<void> admission::enter(std::uint64_t bytes, steady_time deadline) {
  std::unique_lock hold(mutex_);
  ++asking_;
  const bool answered =
      room_.wait_until(hold, deadline, [&] { return closed_ || bytes > memory_ || fits(bytes); });
  --asking_;
  if (auto ok = possible(bytes); !ok) return ok;
  if (!answered) {
    return refuse(errc::timed_out,
                  "submitting a job: {} of {} jobs wait ([jobs] queue), and arguments and kept results hold "
                  "{} of {} ([jobs] "
                  "memory)",
                  counts_.waiting, queue_, bytes_for_people(counts_.argument_bytes + counts_.result_bytes),
                  bytes_for_people(memory_));
  }
  ++counts_.waiting;
  counts_.argument_bytes += bytes;
  return {};
}

result<bool> admission::try_enter(std::uint64_t bytes) {
  const std::lock_guard hold(mutex_);
  if (auto ok = possible(bytes); !ok) return tl::unexpected(ok.error());
  if (!fits(bytes)) return false;
  ++counts_.waiting;
  counts_.argument_bytes += bytes;
  return true;
}

void admission::begun(std::uint64_t jobs) {
  const std::lock_guard hold(mutex_);
  counts_.waiting -= jobs;
  if (asking_ > 0) room_.notify_all();
}

void admission::ended(std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard hold(mutex_);
  counts_.argument_bytes -= bytes;
  if (asking_ > 0) room_.notify_all();
}

void admission::kept(std::uint64_t bytes) {
  const std::lock_guard hold(mutex_);
  counts_.result_bytes += bytes;
}

void admission::let_go(std::uint64_t bytes) {
  const std::lock_guard hold(mutex_);
  counts_.result_bytes -= bytes;
  if (asking_ > 0) room_.notify_all();
}

void admission::close(failure why) {
  const std::lock_guard hold(mutex_);
  if (!closed_) closed_ = std::move(why);
  room_.notify_all();
}

admission::counts admission::now() const {
  const std::lock_guard hold(mutex_);
  return counts_;
}

}  // namespace penstock::jobs
