#include "runtime/schedule/device_queue.hpp"

#include "runtime/base/check.hpp"

#include <algorithm>
#include <utility>

namespace penstock::schedule {

void device_queue::add(std::uint64_t job, bool idempotent, bool kept) {
  const bool fresh = jobs_.emplace(job, entry{.idempotent = idempotent, .kept = kept}).second;
  PENSTOCK_CHECK(fresh && !failure_, "job {} was added twice, or after a failure ({})", job,
                 failure_.has_value());
  waiting_.push_back(job);
}

std::vector<device_order> device_queue::take_orders(std::uint64_t room, std::uint64_t first) {
  std::vector<std::uint64_t> due = std::exchange(waiting_, {});
  std::ranges::sort(due);
  std::vector<device_order> orders;
  orders.reserve(due.size());
  for (const std::uint64_t job : due) {
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) continue;
    if (found->second.kept) {
      if (kept_ordered_ >= room && job != first) {
        waiting_.push_back(job);
        continue;
      }
      ++kept_ordered_;
    }
    found->second.upload = ++last_upload_;
    ordered_.emplace(last_upload_, job);
    orders.push_back({last_upload_, era_, job});
  }
  return orders;
}

device_departure device_queue::depart(std::uint64_t job, device_end how) {
  const auto found = jobs_.find(job);
  PENSTOCK_CHECK(found != jobs_.end(), "job {}", job);
  entry& e = found->second;
  device_departure gone{job, e.wanted ? how : device_end::cancelled, e.wanted, std::move(e.causes)};
  if (e.upload != 0) {
    ordered_.erase(e.upload);
    kept_ordered_ -= e.kept ? 1 : 0;
  }
  jobs_.erase(found);
  return gone;
}

std::optional<device_departure> device_queue::answered(std::uint64_t upload) {
  const auto found = ordered_.find(upload);
  if (found == ordered_.end()) {
    ++late_answers_;
    return std::nullopt;
  }
  return depart(found->second, device_end::answered);
}

device_queue::cancelling device_queue::cancel(std::uint64_t job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end() || !found->second.wanted) return cancelling::unknown;
  if (found->second.upload != 0) {
    found->second.wanted = false;
    return cancelling::unwanted;
  }
  jobs_.erase(found);
  std::erase(waiting_, job);
  return cancelling::gone;
}

std::vector<device_departure> device_queue::owner_lost(std::uint64_t era,
                                                       const std::optional<device_blame>& blamed) {
  std::vector<device_departure> gone;
  if (era <= era_ || failure_) return gone;
  era_ = era;
  kept_ordered_ = 0;
  for (const auto& [upload, job] : std::exchange(ordered_, {})) {
    entry& e = jobs_.at(job);
    e.upload = 0;
    const bool is_blamed = blamed && blamed->job == job;
    if (is_blamed) e.causes.push_back(blamed->cause);
    if (!e.wanted) {
      gone.push_back(depart(job, device_end::cancelled));
    } else if (is_blamed && blamed->poisons) {
      gone.push_back(depart(job, device_end::poisoned));
    } else if (!e.idempotent) {
      if (!is_blamed && blamed) e.causes.push_back(blamed->cause);
      gone.push_back(depart(job, device_end::lost));
    } else {
      waiting_.push_back(job);
    }
  }
  return gone;
}

std::vector<device_departure> device_queue::failed(const std::string& why) {
  std::vector<device_departure> gone;
  if (!failure_) failure_ = why;
  waiting_.clear();
  while (!jobs_.empty()) gone.push_back(depart(jobs_.begin()->first, device_end::no_device));
  return gone;
}

}  // namespace penstock::schedule
