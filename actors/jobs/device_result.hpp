// Job results in the caller's hands that are in device buffers, and the number of buffers that callers hold.
// Thread-safe; may outlive the pool.
#pragma once

#include "actors/gpu_owner/batch_body.hpp"
#include "runtime/base/patient_deadline.hpp"

#include <penstock/stream.hpp>
#include <penstock/tensor.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace penstock::jobs {

/// How long callers may hold all buffers before that is reported to those waiting for one.
inline constexpr nanoseconds patience_with_callers = std::chrono::seconds(10);

/// The ring's buffers that callers hold.
class lent_buffers {
 public:
  /// `came_back`: called when there is more room, on the thread that frees a result.
  lent_buffers(std::shared_ptr<batch_home> home, std::uint32_t buffers, std::function<void()> came_back)
      : home_(std::move(home)), buffers_(buffers), tell_(std::move(came_back)) {}

  [[nodiscard]] batch_home& home() const noexcept { return *home_; }
  /// `job`: the number that messages to users give this job.
  void lend(std::uint64_t job, steady_time now = std::chrono::steady_clock::now());
  void came_back(std::uint64_t job, steady_time now = std::chrono::steady_clock::now());
  /// How many more buffers may be lent. One buffer is always reserved: for jobs whose results do not stay,
  /// and for the first of the results that do.
  [[nodiscard]] std::uint64_t room() const;
  /// Says which results must be freed, once there has been no room for patience_with_callers. Call at least once a
  /// second while a job waits for room: a longer gap counts only in part, because the process may have been
  /// suspended.
  [[nodiscard]] std::optional<std::string> held_too_long(steady_time now);

 private:
  [[nodiscard]] bool has_room() const noexcept { return jobs_.size() + 1 < buffers_; }

  const std::shared_ptr<batch_home> home_;
  const std::uint32_t buffers_;
  const std::function<void()> tell_;
  mutable std::mutex mutex_;
  std::multiset<std::uint64_t> jobs_;
  patient_deadline no_room_{patience_with_callers, std::chrono::seconds(1)};
};

/// A result in one of these buffers.
class device_result {
 public:
  device_result(std::shared_ptr<lent_buffers> among, std::uint64_t job, std::uint32_t buffer,
                std::uint64_t bytes);
  /// Unless release() was called: returns the buffer when the work now on the legacy default stream is done.
  ~device_result();
  device_result(const device_result&) = delete;
  device_result& operator=(const device_result&) = delete;

  // All of these throw error (errc::usage) once the pool is closed.
  [[nodiscard]] tensor_view tensor() const;
  /// Only on the host device; otherwise throws error (errc::usage).
  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] std::vector<std::byte> read_back() const;
  /// Returns the buffer. Call nothing afterwards, unless this throws.
  void release(stream_handle stream);

 private:
  const std::shared_ptr<lent_buffers> among_;
  const std::uint64_t job_;
  const std::uint32_t buffer_;
  const std::uint64_t bytes_;
  bool released_ = false;
};

}  // namespace penstock::jobs
