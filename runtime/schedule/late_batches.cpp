#include "runtime/schedule/late_batches.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

namespace penstock::schedule {

using namespace std::chrono_literals;

void late_batches::loaded(stream_position position, steady_time now) {
  const auto began = begun_.find(position);
  if (began == begun_.end()) return;
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(now - began->second).count();
  const std::array<std::uint32_t, 1> one{
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(took, 0, std::numeric_limits<std::uint32_t>::max()))};
  times_.note(one);
  ++noted_;
  begun_.erase(began);
}

std::optional<nanoseconds> late_batches::limit() const noexcept {
  if (noted_ < peers_min) return std::nullopt;
  return std::max(2 * times_.longer_than_all_but(0.01), limit_min);
}

bool late_batches::is_late(stream_position head, steady_time now) {
  if (head_ != head) {
    head_ = head;
    head_since_ = now;
    // Entries of batches that were lost or delivered early.
    begun_.erase(begun_.begin(), begun_.lower_bound(head));
  }
  const auto began = begun_.find(head);
  const auto most = limit();
  return began != begun_.end() && most && now - std::max(began->second, head_since_) > *most;
}

nanoseconds late_batches::pause() const noexcept {
  const auto most = limit();
  return most ? std::clamp<nanoseconds>(*most / 4, 10ms, 250ms) : 250ms;
}

}  // namespace penstock::schedule
