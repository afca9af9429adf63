// Gathers what telemetry/stream_limits needs to know about a run, five times a second. Used on the io thread.
#pragma once

#include "actors/host/worker_look.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/supervision/awaited.hpp"
#include "runtime/telemetry/limit_advice.hpp"
#include "runtime/telemetry/stream_limits.hpp"

#include <penstock/report.hpp>

#include <cstdint>

namespace penstock::host {

/// What the advice needs to know about a run, except its cores, its workers, its kind and its memory.
[[nodiscard]] telemetry::limit_context context_of(const session_status& status, const telemetry::limit_reading& reading);

class limit_meter {
 public:
  static constexpr nanoseconds look_every = std::chrono::milliseconds(200);

  /// `times`: null for a pool. `waited`: the consumer's waits so far. `waits_since`: when the consumer's wait in progress
  /// began. `begun`: when the consumer first asked for work.
  telemetry::limit_reading look(supervision::progress_facts run, const batch_times* times,
                                const std::vector<worker_look>& workers, std::optional<steady_time> waits_since,
                                nanoseconds waited, steady_time begun, steady_time now);

 private:
  telemetry::stream_limits limits_;
  std::uint64_t released_ = 0;  // number of the last batch seen
};

}  // namespace penstock::host
