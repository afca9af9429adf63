#include "actors/loader/expected_leases.hpp"

#include <utility>
#include <vector>

namespace penstock::loader {

void expected_leases::announce(const protocol::load_batch& lease) {
  const std::lock_guard lock(mutex_);
  if (dataset_ == nullptr) return;
  std::vector<std::uint64_t> samples;
  for (const protocol::wire_sample& one : lease.samples) samples.push_back(one.index);
  try {
    dataset_->expect(samples);
  } catch (...) {
    // load() will fail in the same way, and the error then names its sample.
  }
}

void expected_leases::add_urgent(protocol::load_batch lease) {
  const std::lock_guard lock(orders_);
  urgent_.push_back(std::move(lease));
}

void expected_leases::drop(const protocol::drop_batch& lease) {
  const std::lock_guard lock(orders_);
  dropped_[lease.slot] = lease.generation;
}

bool expected_leases::is_dropped(const protocol::load_batch& lease) {
  const std::lock_guard lock(orders_);
  const auto found = dropped_.find(lease.slot);
  return found != dropped_.end() && found->second == lease.generation;
}

std::optional<protocol::load_batch> expected_leases::take_urgent() {
  const std::lock_guard lock(orders_);
  if (urgent_.empty()) return std::nullopt;
  protocol::load_batch lease = std::move(urgent_.front());
  urgent_.pop_front();
  return lease;
}

void expected_leases::set_dataset(Dataset* dataset) {
  const std::lock_guard lock(mutex_);
  dataset_ = dataset;
}

}  // namespace penstock::loader
