// Checks once a second whether the stream makes progress, and notifies the session when that changes. Runs on
// the session's io thread: construct it on any thread, destroy it on that one.
#pragma once

#include "actors/host/board.hpp"
#include "actors/host/standstill_meter.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/running_clock.hpp"
#include "runtime/process/ticker.hpp"
#include "runtime/supervision/progress_watch.hpp"
#include "runtime/telemetry/run_rates.hpp"

#include <penstock/event.hpp>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::host {

/// What each worker's thread is waiting for in the kernel, if the worker has spent a long time on one sample or has none.
/// Reads a few small files in /proc per worker; none of these reads blocks on the process. Leaves out workers from
/// `first_remote_place` on, which run on other machines.
[[nodiscard]] std::map<std::uint32_t, std::string> standing_of(const session_status& status, std::uint32_t first_remote_place,
                                                               const arena::flight_recorders& flights);

/// How far each worker has got with the batch that it is loading.
[[nodiscard]] std::map<std::uint32_t, supervision::loading_now> loading_of(const session_status& status,
                                                                           const arena::flight_recorders& flights);

/// Acts on a change that a watch reports: publishes the stall, logs the change, and passes it on as an event. `what`:
/// what stalls, such as "stream".
void announce(supervision::progress_watch::news what_changed, const std::optional<stall_report>& stalled,
              double stood_seconds, std::string_view what, board& published,
              const std::function<void(event)>& tell);

class progress_ticker {
 public:
  using gather = std::function<supervision::progress_facts()>;
  /// `stood_seconds`: for news::moves_again, how long there was no progress.
  using tell = std::function<void(supervision::progress_watch::news, const std::optional<stall_report>&,
                                  double stood_seconds, telemetry::rates_told rates)>;

  /// Calls `facts` and `news` on the io thread; they must not block. Calls `news` after every check.
  progress_ticker(process::io_thread& io, gather facts, tell news);

  /// The stall at the moment of these facts; call on the io thread. The last check may be a second old.
  [[nodiscard]] std::optional<stall_report> stalled_at(const supervision::progress_facts& facts) const;

 private:
  void look();

  gather facts_;
  tell tell_;
  running_clock clock_;  // no progress is expected while this process is suspended
  supervision::progress_watch watch_;
  standstill_meter standstill_;
  telemetry::run_rates rates_;
  process::ticker ticker_;  // last: its callback uses the other members
};

}  // namespace penstock::host
