// Checks once a second whether the stream makes progress, and notifies the session when that changes. Runs on
// the session's io thread: construct it on any thread, destroy it on that one.
#pragma once

#include "actors/session/board.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/process/ticker.hpp"
#include "runtime/supervision/progress_watch.hpp"
#include "runtime/telemetry/rate_meter.hpp"

#include <penstock/event.hpp>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::session {

/// Where the threads wait that have worked on one sample for a long time. Reads a few small files in /proc
/// for each of them; none of these reads blocks on the process.
[[nodiscard]] std::map<std::uint32_t, std::string> standing_of(const session_status& status,
                                                               const arena::flight_recorders& flights);

/// Acts on news of a watch: publishes the stall, logs, and passes on a change as an event. `what`: "stream".
void announce(supervision::progress_watch::news what_changed, const std::optional<stall_report>& stalled,
              double stood_seconds, std::string_view what, board& published,
              const std::function<void(event)>& tell);

class progress_ticker {
 public:
  using gather = std::function<supervision::progress_facts()>;
  /// `stood_seconds`: for news::moves_again, how long there was no progress. `rate`: of samples, or jobs, per second.
  using tell = std::function<void(supervision::progress_watch::news, const std::optional<stall_report>&,
                                  double stood_seconds, std::optional<double> rate)>;

  /// Both are called on the io thread and must not block. `news` is called after every check.
  progress_ticker(process::io_thread& io, gather facts, tell news);

 private:
  void look();

  gather facts_;
  tell tell_;
  supervision::progress_watch watch_;
  telemetry::rate_meter meter_;
  process::ticker ticker_;  // last: its callback uses the others
};

}  // namespace penstock::session
