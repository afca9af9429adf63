#include "actors/jobs/job_record.hpp"

#include "actors/jobs/callback_thread.hpp"

#include <algorithm>

namespace penstock::jobs {

/// Wakes waiting threads and runs the callbacks.
void job_record::over(std::unique_lock<std::mutex> hold) {
  done_ = true;
  const auto callbacks = std::exchange(callbacks_, {});
  if (!callbacks.empty() && result_) result_->belongs_to(callback_thread_);
  const auto watcher = std::exchange(watcher_, {});
  if (waiting_ > 0) ended_.notify_all();
  hold.unlock();
  if (watcher) watcher();
  for (const auto& callback : callbacks) call(callback);
}

/// Runs the callback on the pool's callback thread, or here once the pool has closed that thread.
void job_record::call(const std::function<void(Job)>& callback) {
  const auto control = control_.lock();
  const auto run = [callback, self = shared_from_this()] { callback(job_access::make(self)); };
  if (!control || !control->call_back(run)) callback_thread::run(run);
}

void job_record::succeed(std::shared_ptr<kept_result> result, std::uint32_t attempts) {
  // Before waking threads and without mutex_ held: freeing the argument may run the caller's code.
  argument_ = {};
  std::unique_lock hold(mutex_);
  result_ = std::move(result);
  latest_.place.reset();
  attempts_ = attempts;
  over(std::move(hold));
}

void job_record::fail(job_failure why) {
  argument_ = {};
  std::unique_lock hold(mutex_);
  attempts_ = why.attempts;
  latest_.place.reset();
  failure_ = std::move(why);
  over(std::move(hold));
}

/// Polls before a wait that may be short. Call without mutex_ held, because the end of the job locks it.
void job_record::poll(steady_time deadline) const {
  const steady_time until = std::chrono::steady_clock::now() + short_waits::longest;
  if (done_.load(std::memory_order_acquire) || deadline < until) return;
  const auto control = control_.lock();
  short_waits* const waits = control ? control->polls() : nullptr;
  if (waits == nullptr || !waits->next()) return;
  bool done = false;
  do {
    short_waits::relax();
    done = done_.load(std::memory_order_acquire);
  } while (!done && std::chrono::steady_clock::now() < until);
  waits->polled(done);
}

bool job_record::wait_until(steady_time deadline) const {
  poll(deadline);
  std::unique_lock hold(mutex_);
  if (done_) return true;
  ++waiting_;
  const bool done = ended_.wait_until(hold, deadline, [this] { return done_.load(); });
  --waiting_;
  return done;
}

std::optional<std::string> job_record::why_in_vain() const {
  const auto control = control_.lock();
  if (!control) return std::nullopt;
  if (auto why = control->waits_for_itself()) return why;
  return at_device_ ? control->who_holds_the_device() : std::nullopt;
}

/// Also checks regularly whether the job needs memory or device buffers that this thread holds.
void job_record::wait_until_done(std::unique_lock<std::mutex>& hold) const {
  ++waiting_;
  while (!done_) {
    if (ended_.wait_for(hold, look_every, [this] { return done_.load(); })) continue;
    hold.unlock();
    const auto why = why_in_vain();
    hold.lock();
    if (!why || done_) continue;
    --waiting_;
    throw error({errc::usage, fmt::format("job {} ({}) waits: {}", known_as(), function_, *why), 0});
  }
  --waiting_;
}

void job_record::wait() const {
  poll(steady_time::max());
  std::unique_lock hold(mutex_);
  wait_until_done(hold);
}

void job_record::hand_over() const {
  const std::lock_guard hold(mutex_);
  if (result_) result_->belongs_to(this_thread());
}

std::shared_ptr<kept_result> job_record::take() {
  poll(steady_time::max());
  std::unique_lock hold(mutex_);
  wait_until_done(hold);
  if (failure_) throw job_error(known_as(), *failure_);
  if (std::exchange(taken_, true)) {
    throw error(
        {errc::usage,
         fmt::format(
             "taking the result of job {} ({}) a second time: a result can be taken once; keep the Result",
             known_as(), function_),
         0});
  }
  if (result_) result_->belongs_to(this_thread());
  return std::exchange(result_, nullptr);
}

std::optional<job_failure> job_record::why() const {
  const std::lock_guard hold(mutex_);
  return failure_;
}

std::uint32_t job_record::attempts() const {
  const std::lock_guard hold(mutex_);
  if (done_ || !latest_.place) return attempts_;
  return latest_begun() ? latest_.row.attempt : latest_.row.attempt - 1;
}

/// The row of the latest attempt, if that has begun. Call with mutex_ held, and only if there is a place.
std::optional<arena::job_reading> job_record::latest_begun() const {
  const arena::job_slot table(latest_.row.slot);
  const auto rows = table.rows(latest_.row.generation);
  if (!rows || latest_.row.row >= *rows) return std::nullopt;
  const auto found = table.read(latest_.row.row);
  const bool begun = found && found->job == known_as() && found->state != arena::row_state::waiting &&
                     found->state != arena::row_state::revoked;
  return begun ? std::optional(*found) : std::nullopt;
}

std::optional<nanoseconds> job_record::ran_for(steady_time now) const {
  const std::lock_guard hold(mutex_);
  const auto row = done_ || !latest_.place ? std::nullopt : latest_begun();
  if (!row) return std::nullopt;
  // The worker may have written any values there.
  return std::max(row->state == arena::row_state::begun ? now - row->begun : row->busy, nanoseconds(0));
}

void job_record::leased_to(std::shared_ptr<const lent_place> place, leased_row where) {
  const std::lock_guard hold(mutex_);
  latest_.place = std::move(place);
  latest_.row = where;
}

bool job_record::end(bool only_waiting, bool at_once) {
  if (home_.left()) return false;
  {
    const std::lock_guard hold(mutex_);
    if (done_) return false;
  }
  const auto control = control_.lock();
  return control && control->end_job(number_, only_waiting, at_once);
}

void job_record::then(std::function<void(Job)> callback) {
  const auto thread = number_of_callback_thread();
  {
    const std::lock_guard hold(mutex_);
    if (!done_) {
      callback_thread_ = thread;
      callbacks_.push_back(std::move(callback));
      return;
    }
    if (result_) result_->belongs_to(thread);
  }
  call(callback);
}

schedule::job_bounds::thread_number job_record::number_of_callback_thread() const {
  const auto control = control_.lock();
  return control ? control->callback_thread() : 0;
}

void job_record::watch(std::function<void()> ended) {
  {
    const std::lock_guard hold(mutex_);
    if (!done_) {
      watcher_ = std::move(ended);
      return;
    }
  }
  ended();
}

}  // namespace penstock::jobs
