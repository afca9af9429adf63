// Decides when to repeat a request to object storage: which answers are transient, how long to pause, and when to send
// a second request because the first is slow. Pure; time is an argument. Used by the transfers.
#pragma once

#include "runtime/base/clock.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace penstock {

/// Whether a status is transient: 408, 429, and the 5xx that a server sends while it is
/// overloaded or restarting.
bool is_transient_status(int status) noexcept;

/// The pause before attempt `attempt` (2, 3, ...): 5, 10, 40, 160, 640 and 1280 ms, then 2 s each, times a factor
/// between 0.5 and 1. The factor depends on `key`, so that workers that failed together do not retry together. Empty
/// after the last attempt. So a request recovers quickly from an occasional error, and waits several seconds for a
/// restarting server.
std::optional<nanoseconds> pause_before(unsigned attempt, std::uint64_t key) noexcept;

/// Statistics of how long recent requests took.
class recent_times {
 public:
  void add(nanoseconds time) noexcept;
  /// When a request counts as slow: after 1.5 times the 90th percentile, or less if times differ little; at least 20
  /// ms. 0.5 s until 16 times are known.
  [[nodiscard]] nanoseconds slow() const noexcept { return slow_; }
  /// The median; 0 until 16 times are known.
  [[nodiscard]] nanoseconds median() const noexcept { return median_; }
  [[nodiscard]] nanoseconds fast() const noexcept { return fast_; }  ///< the 10th percentile
  /// Whether half of the requests took noticeably longer than the fastest tenth, which means that
  /// requests wait for each other.
  [[nodiscard]] bool queueing() const noexcept { return queueing_; }

 private:
  static constexpr std::size_t remembered = 128;

  std::array<nanoseconds, remembered> times_{};
  std::size_t count_ = 0;
  nanoseconds slow_ = std::chrono::milliseconds(500);
  nanoseconds median_{};
  nanoseconds fast_{};
  bool queueing_ = false;
};

/// Decides how many requests are sent at a time, and when a second request is sent for the same bytes.
///
/// A second request is sent when an answer takes much longer to begin, or to end, than recent
/// answers. At most a tenth of all requests are second requests, so a server that is slow as a whole
/// does not get twice the load.
///
/// The number of requests at a time grows until answers begin late because requests wait for each other, or
/// arrive slowly because they share the link. More requests would only hide which of them are slow, and
/// batches that are needed later would compete with the next batch for the link.
class request_pace {
 public:
  void started() noexcept { budget_ = budget_ < budget_max ? budget_ + share : budget_; }
  void answered(nanoseconds to_first_byte, nanoseconds to_end, std::uint64_t bytes) noexcept;

  [[nodiscard]] std::size_t at_once() const noexcept { return static_cast<std::size_t>(at_once_); }
  /// How long an answer may take before a second request is sent. `has_begun`: its first byte has arrived.
  [[nodiscard]] nanoseconds patience(bool has_begun) const noexcept {
    return has_begun ? to_end_.slow() : to_first_byte_.slow();
  }
  /// Whether a second request may be sent now. If so, counts it.
  bool take_second() noexcept;

 private:
  static constexpr double share = 0.1;
  static constexpr double budget_max = 20;
  static constexpr double at_once_min = 8;
  static constexpr double at_once_max = 64;
  [[nodiscard]] bool share_the_link() const noexcept;

  recent_times to_first_byte_;
  recent_times to_end_;
  recent_times arriving_;  ///< times from the first to the last byte of an answer
  recent_times a_mebibyte_;  ///< the same times, per MiB of the answer
  nanoseconds fastest_mebibyte_{};  ///< 0: unknown
  double budget_ = budget_max;
  double at_once_ = at_once_min;
};

}  // namespace penstock
