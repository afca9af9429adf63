// A deadline that does not count time in which nobody looked. Whoever watches something may be late himself: the
// process was stopped (SIGSTOP), the machine was suspended, or it is so busy that a thread does not get its turn.
// What has not been seen then proves nothing about what is watched. Pure; used by the GPU owner and by what polls a
// stream.
#pragma once

#include "runtime/base/clock.hpp"

#include <algorithm>

namespace penstock {

/// One look accounts for at most twice the time that should lie between two of them: a watcher that is always late by
/// less than that counts everything, one that slept for an hour counts two looks.
class patient_deadline {
 public:
  /// Over when nothing has happened for more than `limit`, watched by look() every `look_every`, which should be a
  /// small part of it.
  constexpr patient_deadline(nanoseconds limit, nanoseconds look_every)
      : limit_(limit), counted_a_look_max_(2 * look_every) {}

  /// From now on the whole time again: what is watched begins, or has moved.
  constexpr void restart(steady_time now) {
    counted_ = nanoseconds(0);
    looked_ = now;
  }
  /// To be called after having looked, and seen nothing. True: the time is over.
  [[nodiscard]] constexpr bool is_over(steady_time now) {
    counted_ += std::clamp<nanoseconds>(now - looked_, nanoseconds(0), counted_a_look_max_);
    looked_ = now;
    return counted_ > limit_;
  }

  /// For how long it has been watched in vain.
  [[nodiscard]] constexpr nanoseconds counted() const noexcept { return counted_; }
  [[nodiscard]] constexpr nanoseconds limit() const noexcept { return limit_; }

 private:
  nanoseconds limit_;
  nanoseconds counted_a_look_max_;
  nanoseconds counted_{0};
  steady_time looked_{};
};

}  // namespace penstock
