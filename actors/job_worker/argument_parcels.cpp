#include "actors/job_worker/argument_parcels.hpp"

#include <algorithm>
#include <chrono>

namespace penstock::job_worker {

result<std::optional<protocol::parcel>> argument_parcels::take(const protocol::run_jobs& lease,
                                                               std::uint32_t row, nanoseconds patience) {
  const auto is_it = [&](const protocol::parcel& one) {
    return one.label.slot == lease.slot && one.label.generation == lease.generation && one.label.row == row;
  };
  if (const auto here = std::ranges::find_if(kept_, is_it); here != kept_.end()) {
    std::optional<protocol::parcel> found(std::move(*here));
    kept_.erase(here);
    return found;
  }
  const steady_time until = std::chrono::steady_clock::now() + patience;
  while (true) {
    const nanoseconds left = std::max<nanoseconds>(until - std::chrono::steady_clock::now(), nanoseconds(0));
    auto came = protocol::receive_parcel(socket_, left);
    if (!came || !came->has_value() || is_it(**came)) return came;
    if (wanted((*came)->label)) kept_.push_back(std::move(**came));
  }
}

void argument_parcels::lease_over(const protocol::run_jobs& lease) {
  over_[lease.slot] = lease.generation;
  std::erase_if(kept_, [this](const protocol::parcel& one) { return !wanted(one.label); });
  while (true) {
    auto came = protocol::receive_parcel(socket_);
    if (!came || !came->has_value()) return;  // the next take() reports the error
    if (wanted((*came)->label)) kept_.push_back(std::move(**came));
  }
}

/// Generations increase and wrap around: a difference of less than half the range means "later".
bool argument_parcels::wanted(const protocol::parcel_label& label) const {
  const auto last = over_.find(label.slot);
  if (last == over_.end()) return true;
  const std::uint32_t ahead = (label.generation - last->second) & generation_mask;
  return ahead != 0 && ahead <= generation_mask / 2;
}

}  // namespace penstock::job_worker
