#include "actors/jobs/awaited_by_consumer.hpp"

#include "runtime/base/sample_name.hpp"

#include <algorithm>
#include <utility>

namespace penstock::jobs {
namespace {

constexpr std::size_t slow_loads_kept = 64;  // more than are delivered between two looks if their samples are really slow

}  // namespace

bool awaited_by_consumer::wait(std::uint64_t job, batch_mark doing, steady_time now) {
  const std::lock_guard hold(mutex_);
  const bool waited = batch_.has_value();
  const bool known = waited && batch_->job == job && batch_->doing.step != batch_step::unknown;
  std::optional<steady_time> since;
  if (known) since = batch_->doing.number == doing.number ? batch_->since : std::optional(now);
  batch_ = {job, std::move(doing), since};
  if (!waited || last_.job != job) last_ = {job, now, now};
  return !waited;
}

bool awaited_by_consumer::came(steady_time now) {
  const std::lock_guard hold(mutex_);
  last_.to = now;
  return std::exchange(batch_, std::nullopt).has_value();
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
    one.from = std::max(last_.from, last_.to - batch.busy);  // before that, the wait was for something else
    one.weight = std::clamp(static_cast<double>(batch.slow.count()) / static_cast<double>(batch.busy.count()), 0.0, 1.0);
  }
  if (slow_.size() > slow_loads_kept) slow_.pop_front();
}

std::vector<slow_load> awaited_by_consumer::slow_loads() const {
  const std::lock_guard hold(mutex_);
  return {slow_.begin(), slow_.end()};
}

}  // namespace penstock::jobs
