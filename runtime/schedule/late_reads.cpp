#include "runtime/schedule/late_reads.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

namespace penstock::schedule {
namespace {

using namespace std::chrono_literals;

constexpr unsigned steps = 8;  // buckets per octave
constexpr std::uint64_t fades_at = 1U << 15U;

std::size_t bucket_of(std::uint32_t microseconds) noexcept {
  if (microseconds < steps) return microseconds;
  const auto octave = static_cast<unsigned>(std::bit_width(microseconds)) - 4;  // 0 for 8 .. 15
  return steps + octave * steps + ((microseconds >> octave) - steps);
}

/// The largest number that belongs to the bucket.
std::uint64_t top_of(std::size_t bucket) noexcept {
  if (bucket < steps) return bucket;
  const std::size_t octave = (bucket - steps) / steps;
  return ((steps + bucket % steps + 1) << octave) - 1;
}

}  // namespace

void late_reads::note(std::span<const std::uint32_t> microseconds) noexcept {
  for (const std::uint32_t one : microseconds) {
    ++counts_[bucket_of(one)];
    if (++total_ < fades_at) continue;
    total_ = 0;
    for (std::uint32_t& count : counts_) total_ += count /= 2;
  }
}

nanoseconds late_reads::longer_than_all_but(double share) const noexcept {
  const auto allowed = static_cast<std::uint64_t>(share * static_cast<double>(total_));
  std::uint64_t longer = 0;
  std::size_t bucket = counts_.size() - 1;
  while (bucket > 0 && longer + counts_[bucket] <= allowed) longer += counts_[bucket--];
  return std::chrono::microseconds(top_of(bucket));
}

std::optional<nanoseconds> late_reads::limit() const noexcept {
  if (total_ < peers_min) return std::nullopt;
  return std::max(std::min(2 * longer_than_all_but(0.001), 4 * longer_than_all_but(0.01)), limit_min);
}

std::set<std::uint32_t> late_reads::late(std::span<const read_under_way> now_read, steady_time now) const {
  std::set<std::uint32_t> found;
  const auto most = limit();
  if (!most) return found;
  for (const read_under_way& one : now_read) {
    if (now - one.since > *most) found.insert(one.worker);
  }
  return found;
}

nanoseconds late_reads::pause() const noexcept {
  const auto most = limit();
  return most ? std::clamp<nanoseconds>(*most / 4, 10ms, 250ms) : 250ms;
}

}  // namespace penstock::schedule
