#include "actors/jobs/awaited_by_consumer.hpp"

#include "runtime/supervision/hang_history.hpp"

#include <utility>

namespace penstock::jobs {

bool awaited_by_consumer::wait(std::uint64_t job, batch_mark doing, steady_time now) {
  const std::lock_guard hold(mutex_);
  const bool waited = batch_.has_value();
  const bool known = waited && batch_->job == job && batch_->doing.step != batch_step::unknown;
  std::optional<steady_time> since;
  if (known) since = batch_->doing.number == doing.number ? batch_->since : std::optional(now);
  batch_ = {job, std::move(doing), since};
  return !waited;
}

bool awaited_by_consumer::came() {
  const std::lock_guard hold(mutex_);
  return std::exchange(batch_, std::nullopt).has_value();
}

std::optional<supervision::awaited_batch> awaited_by_consumer::now() const {
  const std::lock_guard hold(mutex_);
  return batch_;
}

death_report awaited_by_consumer::named(death_report death) const {
  const std::lock_guard hold(mutex_);
  const bool awaited = batch_ && death.job == batch_->job && !batch_->doing.sample.empty();
  if (awaited && supervision::is_hang(death)) death.work = batch_->doing.sample;
  return death;
}

}  // namespace penstock::jobs
