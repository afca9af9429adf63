// Decides whether a caller polls for the end of its job before it sleeps. Waking a caller takes 15 us or
// more, so where jobs end within tens of microseconds, polling is faster and takes no more CPU time. Where
// jobs take longer, polling is a waste, and on a busy machine it keeps the worker from its core, so callers
// then poll only rarely. The worker and the io thread need cores as well: at most half of the cores poll.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace penstock::jobs {

/// Longer waits are clamped to this value: a later deadline would overflow the clock.
inline constexpr std::chrono::nanoseconds longest_wait = std::chrono::hours(24 * 365 * 10);

/// One per pool. Thread-safe.
class short_waits {
 public:
  static constexpr std::chrono::microseconds longest{50};
  /// After many failures in a row, only every 64th wait polls, which costs less than 1 us per wait on
  /// average.
  static constexpr std::uint32_t pause_max = 64;

  explicit short_waits(std::uint32_t cores) noexcept : at_once_max_(cores / 2) {}

  /// Whether the wait that now begins should poll, for at most `longest`; if so, call polled() afterwards.
  [[nodiscard]] bool next() noexcept {
    if (!due()) return false;
    if (polling_.fetch_add(1, std::memory_order_relaxed) < at_once_max_) return true;
    polling_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }

  /// Call when a wait has polled. `in_time`: the job ended meanwhile.
  void polled(bool in_time) noexcept {
    polling_.fetch_sub(1, std::memory_order_relaxed);
    if (in_time) {
      pause_.store(0, std::memory_order_relaxed);
      return;
    }
    const std::uint32_t pause = std::clamp(pause_.load(std::memory_order_relaxed) * 2, 1U, pause_max);
    pause_.store(pause, std::memory_order_relaxed);
    left_out_.store(pause, std::memory_order_relaxed);
  }

  /// Call between two checks: leaves the core's resources to its other hardware thread.
  static void relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

 private:
  bool due() noexcept {
    std::uint32_t left = left_out_.load(std::memory_order_relaxed);
    while (left > 0) {
      if (left_out_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return false;
    }
    return true;
  }

  const std::uint32_t at_once_max_;
  std::atomic<std::uint32_t> polling_{0};
  std::atomic<std::uint32_t> pause_{0};     // how many waits skip polling after the latest failure
  std::atomic<std::uint32_t> left_out_{0};  // how many of those waits remain
};

}  // namespace penstock::jobs
