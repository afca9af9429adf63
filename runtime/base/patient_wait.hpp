// Waits for another thread or process, without counting time during which this process was not running. Each wait consists of short
// turns: after a suspension, a single long wait would time out, although the other side had no time to run either.
#pragma once

#include "runtime/base/patient_deadline.hpp"

#include <condition_variable>
#include <future>
#include <mutex>
#include <utility>

namespace penstock {

/// Returns whether the event came within `at_most`. `wait(turn)` waits for the event for at most `turn`, and returns
/// whether it came. `now` reads the clock.
template <class Wait, class Now>
[[nodiscard]] bool comes_within(nanoseconds at_most, Wait wait, Now now) {
  const nanoseconds turn = look_interval(at_most, std::chrono::milliseconds(250));
  patient_deadline waited(at_most, turn);
  waited.restart(now());
  while (!wait(std::min(turn, at_most - waited.counted()))) {
    if (waited.is_over(now()) || waited.counted() == at_most) return false;
  }
  return true;
}

template <class Wait>
[[nodiscard]] bool comes_within(nanoseconds at_most, Wait wait) {
  return comes_within(at_most, std::move(wait), [] { return std::chrono::steady_clock::now(); });
}

/// A future or shared_future.
template <class Future>
[[nodiscard]] bool is_ready_within(const Future& answer, nanoseconds at_most) {
  return comes_within(at_most, [&](nanoseconds turn) { return answer.wait_for(turn) == std::future_status::ready; });
}

/// Like changed.wait_for(hold, at_most, done).
template <class Done>
[[nodiscard]] bool is_done_within(std::condition_variable& changed, std::unique_lock<std::mutex>& hold, nanoseconds at_most, Done done) {
  return comes_within(at_most, [&](nanoseconds turn) { return changed.wait_for(hold, turn, done); });
}

}  // namespace penstock
