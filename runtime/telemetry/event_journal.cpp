#include "runtime/telemetry/event_journal.hpp"

#include "runtime/base/log.hpp"

#include <algorithm>
#include <atomic>

namespace penstock::telemetry {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::size_t events_at_once = 64;  // how many are copied each time the lock is taken

}  // namespace

event_journal::event_journal(std::size_t capacity) : capacity_(std::max<std::size_t>(capacity, 1)) {}

void event_journal::note(event what) {
  {
    const std::lock_guard hold(mutex_);
    what.number = ++last_;
    what.text.shrink_to_fit();  // thousands of events are kept, so this saves memory
    if (kept_.size() >= capacity_) kept_.pop_front();
    kept_.push_back(std::move(what));
  }
  news_.notify_all();
}

event_reading event_journal::read(std::uint64_t number, std::size_t limit) const {
  event_reading found;
  found.last = last_;
  if (number >= last_) return found;
  const std::uint64_t oldest = last_ - kept_.size() + 1;
  const std::uint64_t first = std::max(number + 1, oldest);
  found.lost = first - (number + 1);
  const std::size_t count = std::min<std::uint64_t>(limit, last_ - first + 1);
  const auto begin = kept_.begin() + static_cast<std::ptrdiff_t>(first - oldest);
  found.events.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
  return found;
}

event_reading event_journal::events_after(std::uint64_t number, std::size_t limit) const {
  const std::lock_guard hold(mutex_);
  return read(number, limit);
}

event_reading event_journal::wait_for_events_after(std::uint64_t number, std::size_t limit) const {
  std::unique_lock hold(mutex_);
  news_.wait(hold, [&] { return last_ > number || given_up_; });
  return read(number, limit);
}

event_reading event_journal::wait_for_events_after(std::uint64_t number, std::size_t limit,
                                                   std::chrono::steady_clock::time_point until) const {
  std::unique_lock hold(mutex_);
  news_.wait_until(hold, until, [&] { return last_ > number || given_up_; });
  return read(number, limit);
}

void event_journal::give_up() {
  {
    const std::lock_guard hold(mutex_);
    given_up_ = true;
  }
  news_.notify_all();
}

// ---- the callback thread ----------------------------------------------------------------------------------

/// Shared with the thread, which may outlive the event_caller: see stop().
struct event_caller::work {
  std::shared_ptr<event_journal> journal;
  event_callback callback;
  std::atomic<std::uint64_t> last{~std::uint64_t{0}};  // no event after this one is delivered
  std::atomic<clock::rep> until{clock::time_point::max().time_since_epoch().count()};

  void call(const event& e) const noexcept {
    try {
      callback(e);
    } catch (const std::exception& thrown) {
      log::error("session", "on_event threw at event {} ({}): {}", e.number, name_of(e.kind), thrown.what());
    } catch (...) {
      log::error("session", "on_event threw at event {} ({})", e.number, name_of(e.kind));
    }
  }

  void run() const {
    std::uint64_t told = 0;
    while (told < last) {
      event_reading found = journal->wait_for_events_after(told, events_at_once);
      if (found.events.empty()) return;
      std::uint64_t dropped = found.lost;
      for (event& e : found.events) {
        if (e.number > last || clock::now().time_since_epoch().count() > until) return;
        e.dropped = std::exchange(dropped, 0);
        told = e.number;
        call(e);
      }
    }
  }
};

event_caller::event_caller(std::shared_ptr<event_journal> journal, event_callback callback)
    : work_(std::make_shared<work>()) {
  work_->journal = std::move(journal);
  work_->callback = std::move(callback);
  thread_ = std::thread([work = work_] { work->run(); });
}

event_caller::~event_caller() {
  stop(std::chrono::milliseconds(0));
}

void event_caller::stop(std::chrono::milliseconds patience) noexcept {
  if (!thread_.joinable()) return;
  const bool from_within = std::this_thread::get_id() == thread_.get_id();
  const auto until = clock::now() + (from_within ? std::chrono::milliseconds(-1) : patience);
  work_->until = until.time_since_epoch().count();
  work_->last = work_->journal->events_after(0, 0).last;
  work_->journal->give_up();
  if (from_within) {
    thread_.detach();  // the thread exits when the callback returns
  } else {
    thread_.join();
  }
}

}  // namespace penstock::telemetry
