#define XXH_INLINE_ALL
#include "runtime/storage/retry.hpp"

#include <xxhash.h>

#include <algorithm>

namespace penstock {

using namespace std::chrono_literals;

bool is_transient_status(int status) noexcept {
  switch (status) {
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504: return true;
    default: return false;
  }
}

std::optional<nanoseconds> pause_before(unsigned attempt, std::uint64_t key) noexcept {
  constexpr unsigned attempts_max = 10;
  constexpr nanoseconds first = 25ms;
  constexpr nanoseconds longest = 2s;
  if (attempt > attempts_max) return std::nullopt;
  const nanoseconds whole = std::min(longest, first * (1U << std::min(attempt > 2 ? attempt - 2 : 0U, 10U)));
  const std::uint64_t drawn = XXH3_64bits_withSeed(&attempt, sizeof attempt, key) >> 54U;  // 0 .. 1023
  return whole / 2 + whole / 2 * static_cast<std::int64_t>(drawn) / 1024;
}

void recent_times::add(nanoseconds time) noexcept {
  constexpr nanoseconds shortest = 20ms;
  constexpr nanoseconds noise = 10ms;
  constexpr std::size_t known_min = 16;
  times_[count_++ % remembered] = time;
  if (count_ < known_min) return;
  std::array<nanoseconds, remembered> sorted = times_;
  const std::size_t known = std::min(count_, remembered);
  std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(known));
  slow_ = std::max(shortest, sorted[known * 9 / 10] * 3 / 2);
  queueing_ = sorted[known / 2] > sorted[known / 10] * 7 / 5 + noise;
}

void request_pace::answered(nanoseconds to_first_byte, nanoseconds to_end) noexcept {
  to_first_byte_.add(to_first_byte);
  to_end_.add(to_end);
  at_once_ += (to_first_byte_.queueing() ? -1 : 1) / at_once_;
  at_once_ = std::clamp(at_once_, at_once_min, at_once_max);
}

bool request_pace::take_second() noexcept {
  if (budget_ < 1) return false;
  budget_ -= 1;
  return true;
}

}  // namespace penstock
