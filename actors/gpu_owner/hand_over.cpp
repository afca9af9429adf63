#include "actors/gpu_owner/hand_over.hpp"

#include "runtime/base/stage_range.hpp"

#include <iterator>

namespace penstock::gpu_owner {

void hand_over::put(std::vector<ready_batch> batches) {
  {
    const std::lock_guard hold(mutex_);
    queue_.insert(queue_.end(), std::make_move_iterator(batches.begin()),
                  std::make_move_iterator(batches.end()));
  }
  changed_.notify_one();
}

void hand_over::take_returned(std::vector<std::uint32_t>& to) {
  const std::lock_guard hold(mutex_);
  to.insert(to.end(), returned_.begin(), returned_.end());
  returned_.clear();
}

bool hand_over::give_back(std::uint32_t buffer) {
  const std::lock_guard hold(mutex_);
  returned_.push_back(buffer);
  return returned_.size() == 1;
}

void hand_over::finish(std::uint64_t seek_number) {
  {
    const std::lock_guard hold(mutex_);
    if (seek_number == seek_number_) finished_ = true;
  }
  changed_.notify_all();
}

void hand_over::stop() {
  {
    const std::lock_guard hold(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

void hand_over::fail(failure why) {
  {
    const std::lock_guard hold(mutex_);
    if (!failure_) failure_ = std::move(why);
  }
  changed_.notify_all();
}

hand_over::taken hand_over::take() {
  while (true) {
    // Never pass "forever" as a deadline: the standard library overflows.
    if (auto next = take_until(std::chrono::steady_clock::now() + std::chrono::hours(1)))
      return std::move(*next);
  }
}

std::optional<hand_over::taken> hand_over::ended() const {
  const std::lock_guard hold(mutex_);
  if (failure_) return *failure_;
  if (stopped_) return stream_ended{};
  return std::nullopt;
}

bool hand_over::has_batch() const {
  const std::lock_guard hold(mutex_);
  return !failure_ && !stopped_ && !queue_.empty();
}

bool hand_over::wait_for_batch(nanoseconds at_most) {
  std::unique_lock hold(mutex_);
  return changed_.wait_for(hold, at_most,
                           [&] { return failure_ || stopped_ || finished_ || !queue_.empty(); });
}

std::optional<hand_over::taken> hand_over::take_until(steady_time deadline) {
  const stage_range range("take");
  std::unique_lock hold(mutex_);
  const bool news = changed_.wait_until(hold, deadline,
                                        [&] { return failure_ || stopped_ || finished_ || !queue_.empty(); });
  if (!news) return std::nullopt;
  if (failure_) return *failure_;
  if (stopped_ || queue_.empty()) return stream_ended{};
  ready_batch next = std::move(queue_.front());
  queue_.pop_front();
  return next;
}

std::vector<ready_batch> hand_over::begin_seek(std::uint64_t seek_number) {
  const std::lock_guard hold(mutex_);
  std::vector<ready_batch> dropped(std::make_move_iterator(queue_.begin()),
                                   std::make_move_iterator(queue_.end()));
  queue_.clear();
  seek_number_ = seek_number;
  finished_ = false;
  return dropped;
}

}  // namespace penstock::gpu_owner
