#define XXH_INLINE_ALL
#include "runtime/storage/retry.hpp"

#include "runtime/base/units.hpp"

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
  constexpr std::array<nanoseconds, 7> pauses{5ms, 10ms, 40ms, 160ms, 640ms, 1280ms, 2s};
  if (attempt > attempts_max) return std::nullopt;
  const nanoseconds whole = pauses[std::min<std::size_t>(attempt > 2 ? attempt - 2 : 0, pauses.size() - 1)];
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
  median_ = sorted[known / 2];
  fast_ = sorted[known / 10];
  const nanoseconds most = sorted[known * 9 / 10];
  slow_ = std::max(shortest, std::min(most * 3 / 2, most + 2 * (most - median_) + noise));
  queueing_ = median_ > fast_ * 7 / 5 + noise;
}

void request_pace::answered(nanoseconds to_first_byte, nanoseconds to_end, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t measured_min = 64 * KiB;  // smaller answers arrive in a packet or two
  to_first_byte_.add(to_first_byte);
  to_end_.add(to_end);
  arriving_.add(to_end - to_first_byte);
  if (bytes >= measured_min) {
    a_mebibyte_.add((to_end - to_first_byte) * static_cast<std::int64_t>(MiB) / static_cast<std::int64_t>(bytes));
    const nanoseconds fast = a_mebibyte_.fast();
    if (fast > 0ns && (fastest_mebibyte_ == 0ns || fast < fastest_mebibyte_)) fastest_mebibyte_ = fast;
    // If even the fewest requests at a time take long, other traffic has slowed the link down, so
    // raise the reference slowly.
    if (at_once_ <= at_once_min) fastest_mebibyte_ += (fast - fastest_mebibyte_) / 256;
  }
  at_once_ += (to_first_byte_.queueing() || share_the_link() ? -1 : 1) / at_once_;
  at_once_ = std::clamp(at_once_, at_once_min, at_once_max);
}

/// A connection may be slow by itself, so the link counts as full only if a MiB has
/// taken much less time before.
bool request_pace::share_the_link() const noexcept {
  constexpr nanoseconds noise = 10ms;
  return fastest_mebibyte_ > 0ns && a_mebibyte_.median() > 4 * fastest_mebibyte_ &&
         arriving_.median() > std::max(noise, to_first_byte_.median() / 2);
}

bool request_pace::take_second() noexcept {
  if (budget_ < 1) return false;
  budget_ -= 1;
  return true;
}

}  // namespace penstock
