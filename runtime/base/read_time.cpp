#include "runtime/base/read_time.hpp"

#include <atomic>
#include <cstdint>

namespace penstock {
namespace {

std::atomic<std::int64_t> total_ns{0};
std::atomic<std::int64_t> since_ns{0};  // 0: no read is in progress

}  // namespace

timed_read::timed_read() noexcept : began_(std::chrono::steady_clock::now()) {
  since_ns.store(nanoseconds(began_.time_since_epoch()).count(), std::memory_order_relaxed);
}

timed_read::~timed_read() {
  const nanoseconds took = std::chrono::steady_clock::now() - began_;
  total_ns.fetch_add(took.count(), std::memory_order_relaxed);
  since_ns.store(0, std::memory_order_relaxed);
}

nanoseconds time_spent_reading() noexcept {
  return nanoseconds(total_ns.load(std::memory_order_relaxed));
}

std::optional<steady_time> reads_since() noexcept {
  const std::int64_t since = since_ns.load(std::memory_order_relaxed);
  return since == 0 ? std::nullopt : std::optional(steady_time(nanoseconds(since)));
}

}  // namespace penstock
