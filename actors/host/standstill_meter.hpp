// Measures how long this process was suspended, and describes it (rule W26). Used on the io thread.
#pragma once

#include "runtime/base/work_kind.hpp"
#include "runtime/supervision/standstill_watch.hpp"

#include <penstock/event.hpp>

#include <chrono>
#include <optional>

namespace penstock::host {

/// "the session's process was suspended for 12.3 s, from .. to ..": `ended` is the time at which it continued.
[[nodiscard]] event event_of_standstill(nanoseconds stood, std::chrono::system_clock::time_point ended, work_kind kind);

class standstill_meter {
 public:
  explicit standstill_meter(nanoseconds every) : watch_(every) {}

  /// Call on one thread, about as often as `every` says. Returns how long the process was suspended since the last call, if it
  /// was.
  [[nodiscard]] std::optional<nanoseconds> look();

 private:
  supervision::standstill_watch watch_;
};

}  // namespace penstock::host
