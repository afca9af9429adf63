#include "actors/jobs/awaited_by_consumer.hpp"

#include "runtime/base/sample_name.hpp"

#include <algorithm>
#include <utility>

namespace penstock::jobs {
namespace {

constexpr std::size_t slow_loads_kept = 64;  // more than are delivered between two looks if their samples are really slow
constexpr std::size_t lost_waits_kept = 64;  // more than end between two looks: each follows the start of a process

}  // namespace

bool awaited_by_consumer::wait(std::uint64_t job, batch_mark doing, steady_time now) {
  const std::lock_guard hold(mutex_);
  const bool waited = batch_.has_value();
  const bool known = waited && batch_->job == job && batch_->doing.step != batch_step::unknown;
  std::optional<steady_time> since;
  if (known) since = batch_->doing.number == doing.number ? batch_->since : std::optional(now);
  batch_ = {job, std::move(doing), since};
  last_ = {job, waited ? last_.from : now, now};
  return !waited;
}

bool awaited_by_consumer::came(steady_time now) {
  const std::lock_guard hold(mutex_);
  if (!batch_) return false;
  batch_.reset();
  last_.to = now;
  if (const auto part = losses_.part_of_wait(last_.job, last_.from, now)) {
    lost_.push_back(*part);
    lost_.back().number = ++lost_so_far_;
  }
  if (lost_.size() > lost_waits_kept) lost_.pop_front();
  return true;
}

std::optional<supervision::awaited_batch> awaited_by_consumer::now() const {
  const std::lock_guard hold(mutex_);
  return batch_;
}

void awaited_by_consumer::was_slow(const slow_batch& batch) {
  const std::lock_guard hold(mutex_);
  slow_load& one = slow_.emplace_back();
  one.number = ++slow_so_far_;
  one.worker = batch.worker;
  if (!batch.slowest.empty()) one.sample = {batch.slowest.front().index.value_or(not_numbered), batch.slowest.front().name, batch.slowest.front().took};
  if (last_.job == batch.job && batch.busy.count() > 0) {
    one.to = last_.to;
    one.from = std::max(last_.from, last_.to - batch.busy);  // before its worker began, the wait was for something else
    one.weight = std::clamp(static_cast<double>(batch.slow.count()) / static_cast<double>(batch.busy.count()), 0.0, 1.0);
  }
  if (slow_.size() > slow_loads_kept) slow_.pop_front();
}

std::vector<slow_load> awaited_by_consumer::slow_loads() const {
  const std::lock_guard hold(mutex_);
  return {slow_.begin(), slow_.end()};
}

void awaited_by_consumer::lost(std::uint64_t job, steady_time leased) {
  const std::lock_guard hold(mutex_);
  losses_.lost(job, leased);
}

void awaited_by_consumer::leased(std::uint64_t job, steady_time now) {
  const std::lock_guard hold(mutex_);
  losses_.leased(job, now);
}

void awaited_by_consumer::repeats(std::uint64_t job, std::uint64_t former) {
  const std::lock_guard hold(mutex_);
  losses_.repeats(job, former);
}

std::vector<lost_wait> awaited_by_consumer::lost_waits(steady_time now) const {
  const std::lock_guard hold(mutex_);
  std::vector<lost_wait> all(lost_.begin(), lost_.end());
  if (!batch_ || !batch_->doing.in_order) return all;
  if (const auto part = losses_.part_of_wait(last_.job, last_.from, now)) all.push_back(*part);
  return all;
}

}  // namespace penstock::jobs
