// The number of leases that each worker holds: the scheduler writes it, the supervisor reads it.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace penstock::scheduler {

/// For detecting hung workers. Thread-safe.
class lease_counts {
 public:
  explicit lease_counts(std::uint32_t places) : counts_(places) {}
  void set(std::uint32_t worker, std::uint32_t leases) noexcept {
    if (worker < counts_.size()) counts_[worker].store(leases, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t of(std::uint32_t worker) const noexcept {
    return worker < counts_.size() ? counts_[worker].load(std::memory_order_relaxed) : 0;
  }

 private:
  std::vector<std::atomic<std::uint32_t>> counts_;
};

}  // namespace penstock::scheduler
