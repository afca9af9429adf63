#include "actors/session/stream_cursor.hpp"

#include "runtime/base/result.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace penstock::session {

using namespace std::chrono_literals;

void stream_cursor::open(std::shared_ptr<const plan> order,
                         std::shared_ptr<const device::transfer_plan> transfer,
                         schedule::stream_range range) {
  const std::lock_guard hold(mutex_);
  plan_ = std::move(order);
  transfer_ = std::move(transfer);
  range_ = range;
  front_ = schedule::delivery_front(range.first, range.early);
  changed_.notify_all();
}

void stream_cursor::give_up() {
  const std::lock_guard hold(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

std::shared_ptr<const device::transfer_plan> stream_cursor::transfer() const {
  const std::lock_guard hold(mutex_);
  return transfer_;
}

bool stream_cursor::enter(std::uint64_t epoch, std::uint64_t& iteration) {
  const bool first = iteration == 0;
  if (first) iteration = ++iteration_;
  if (iteration != iteration_) {
    throw error({errc::usage,
                 fmt::format("this range over epoch {} is out of date: the session has moved on", epoch), 0});
  }
  return first;
}

std::optional<schedule::stream_range> stream_cursor::wait_for_epoch(
    std::uint64_t epoch, const std::function<void()>& while_waiting) {
  std::unique_lock hold(mutex_);
  while (!changed_.wait_for(hold, 50ms, [&] { return plan_ || given_up_; })) {
    if (!while_waiting) continue;
    hold.unlock();
    while_waiting();
    hold.lock();
  }
  if (!plan_) return std::nullopt;
  const std::uint64_t batches = plan_->batches_per_epoch();
  if (batches > 0 && epoch >= std::numeric_limits<stream_position>::max() / batches)
    throw error({errc::usage, fmt::format("there is no epoch {}", epoch), 0});
  return schedule::stream_range{epoch * batches + plan_->shape().of(epoch).first_batch,
                                (epoch + 1) * batches};
}

next_step stream_cursor::step_in(schedule::stream_range epoch, bool from_its_first) const {
  // A range continues where it stopped; a new one begins at its first batch, wherever the stream is.
  const stream_position next = front_.head();
  const bool here = from_its_first ? front_ == schedule::delivery_front(epoch.first)
                                   : next >= epoch.first && next <= epoch.end;
  if (!here) return next_step::seek;
  if (next < epoch.end) return next_step::take;
  const std::lock_guard hold(mutex_);
  return next >= range_.end ? next_step::stream_over : next_step::epoch_over;
}

stream_cursor::seek_order stream_cursor::begin_seek(schedule::stream_range range) {
  front_ = schedule::delivery_front(range.first);
  ended_ = false;
  const std::lock_guard hold(mutex_);
  // Prepare the stream beyond this epoch, up to the last epoch of the config.
  const std::uint64_t batches = plan_->batches_per_epoch();
  range_ = {range.first, std::max(range.end, epochs_ * batches)};
  seek_order order{++seek_number_, range_, nullptr};
  const stream_shape& shape = plan_->shape();
  if (shape.has_entered() && batches > 0 && range.first / batches < shape.entered_epoch) {
    plan_ = std::make_shared<const plan>(plan_->from_the_beginning());
    order.plan = plan_;
  }
  return order;
}

void stream_cursor::reach_end() {
  const std::lock_guard hold(mutex_);
  front_ = schedule::delivery_front(range_.end);
}

bool stream_cursor::end() noexcept {
  return !std::exchange(ended_, true);
}

bool stream_cursor::everything_taken() const {
  const std::lock_guard hold(mutex_);
  return plan_ && front_.head() >= epochs_ * plan_->batches_per_epoch();
}

}  // namespace penstock::session
