#include "tools/penstock/chaos/victim_book.hpp"

#include <algorithm>

namespace penstock::cli {

victim_book::victim_book(const loader_intensity_config& intensity, std::uint32_t max_attempts)
    : intensity_(intensity), hits_max_(std::max(max_attempts, 2U) - 1) {}

void victim_book::worker_died(std::uint32_t worker, std::optional<std::uint64_t> sample, time when) {
  if (sample) {
    ++hits_[*sample];
  } else {
    unblamed_[worker].push_back(when);
  }
}

bool victim_book::may_be_struck(std::uint32_t worker, std::optional<std::uint64_t> sample, time now) const {
  if (const auto hit = sample ? hits_.find(*sample) : hits_.end(); hit != hits_.end() && hit->second >= hits_max_)
    return false;
  const auto deaths = unblamed_.find(worker);
  if (deaths == unblamed_.end()) return true;
  const auto is_recent = [&](time when) { return now - when <= intensity_.within; };
  return std::ranges::count_if(deaths->second, is_recent) < intensity_.max;
}

}  // namespace penstock::cli
