#include "runtime/device/alarm.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/signals.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace penstock::device {

// A timerfd is accurate to microseconds; a condition variable's timeout is subject to the thread's timer
// slack.
alarm::alarm() : timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  PENSTOCK_CHECK(timer_ && stop_.fd() >= 0, "creating a timer: {}", std::strerror(errno));
  const all_signals_blocked quiet;
  thread_ = std::thread([this] { run(); });
}

alarm::~alarm() {
  stop_.raise();
  thread_.join();
}

void alarm::set(steady_time at) {
  const std::lock_guard hold(times_);
  due_ = at;
  if (at < timer_ends_) start_timer(at);
}

void alarm::start_timer(steady_time at) {
  timer_ends_ = at;
  // A time of zero would disarm the timer.
  const auto since_boot = std::max<nanoseconds>(at.time_since_epoch(), nanoseconds(1));
  itimerspec when{};
  when.it_value.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(since_boot).count();
  when.it_value.tv_nsec = (since_boot % std::chrono::seconds(1)).count();
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void alarm::on_ring(std::function<void()> call) {
  const std::lock_guard hold(calling_);
  call_ = std::move(call);
}

/// Called when the timer has expired. Returns false if the alarm was postponed in the meantime.
bool alarm::is_due() {
  const std::lock_guard hold(times_);
  timer_ends_ = never;
  if (due_ == never) return false;
  if (due_ > std::chrono::steady_clock::now()) {
    start_timer(due_);
    return false;
  }
  due_ = never;
  return true;
}

void alarm::run() {
  ::pthread_setname_np(::pthread_self(), "penstock-alarm");
  std::array<pollfd, 2> watched{pollfd{timer_.get(), POLLIN, 0}, pollfd{stop_.fd(), POLLIN, 0}};
  while (true) {
    if (::poll(watched.data(), watched.size(), -1) < 0) continue;
    if (watched[1].revents != 0) return;
    std::uint64_t ended = 0;
    if (::read(timer_.get(), &ended, sizeof ended) < 0) continue;  // the timer was set again in the meantime
    if (!is_due()) continue;
    const std::lock_guard hold(calling_);
    if (call_) call_();
  }
}

}  // namespace penstock::device
