// Results of jobs in the caller's hands that lie in device buffers, and who holds how many of those. Thread-safe; may outlive
// the pool.
#pragma once

#include "actors/gpu_owner/batch_body.hpp"
#include "runtime/base/clock.hpp"

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

/// So long callers may hold all buffers before those who wait for one are told.
inline constexpr nanoseconds patience_with_callers = std::chrono::seconds(10);

/// The ring's buffers that callers hold.
class lent_buffers {
 public:
  /// `came_back`: is told when there is more room; on the thread that lets a result go.
  lent_buffers(std::shared_ptr<batch_home> home, std::uint32_t buffers, std::function<void()> came_back)
      : home_(std::move(home)), buffers_(buffers), tell_(std::move(came_back)) {}

  [[nodiscard]] batch_home& home() const noexcept { return *home_; }
  void lend(std::uint64_t job);
  void came_back(std::uint64_t job);
  /// So many more may be lent. One is never among them: it is for jobs whose results do not stay, and for the first of
  /// those that do.
  [[nodiscard]] std::uint64_t room() const;
  /// Which results have to be let go, if there has been no room for so long.
  [[nodiscard]] std::optional<std::string> held_for(nanoseconds time, steady_time now) const;

 private:
  const std::shared_ptr<batch_home> home_;
  const std::uint32_t buffers_;
  const std::function<void()> tell_;
  mutable std::mutex mutex_;
  std::multiset<std::uint64_t> jobs_;
  std::optional<steady_time> no_room_since_;
};

/// One of them.
class device_result {
 public:
  device_result(std::shared_ptr<lent_buffers> among, std::uint64_t job, std::uint32_t buffer,
                std::uint64_t bytes);
  /// Returns the buffer when the work now on the legacy default stream is done, unless it was released.
  ~device_result();
  device_result(const device_result&) = delete;
  device_result& operator=(const device_result&) = delete;

  // All throw error (errc::usage) when the pool is closed.
  [[nodiscard]] tensor_view tensor() const;
  /// On the host device; else it throws error (errc::usage).
  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] std::vector<std::byte> read_back() const;
  /// Call nothing afterwards, unless it throws.
  void release(stream_handle stream);

 private:
  const std::shared_ptr<lent_buffers> among_;
  const std::uint64_t job_;
  const std::uint32_t buffer_;
  const std::uint64_t bytes_;
  bool released_ = false;
};

}  // namespace penstock::jobs
