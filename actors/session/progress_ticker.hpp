// Looks once a second whether the stream moves, and tells the session when that changes. Lives on the
// session's io thread: made on any thread, destroyed on that one.
#pragma once

#include "runtime/arena/flight_recorder.hpp"
#include "runtime/process/ticker.hpp"
#include "runtime/supervision/progress_watch.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>

namespace penstock::session {

/// Where the threads stand that have been at one sample for long enough to be asked about. Reads a few small
/// files of /proc for each of them, none of which waits for the process.
[[nodiscard]] std::map<std::uint32_t, std::string> standing_of(const session_status& status,
                                                               const arena::flight_recorders& flights);

class progress_ticker {
 public:
  using gather = std::function<supervision::progress_facts()>;
  /// `stood_seconds`: how long nothing had moved, of news::moves_again.
  using tell = std::function<void(supervision::progress_watch::news, const std::optional<stall_report>&,
                                  double stood_seconds)>;

  /// Both are called on the io thread and must not block. `news` is called after every look.
  progress_ticker(process::io_thread& io, gather facts, tell news);

 private:
  void look();

  gather facts_;
  tell tell_;
  supervision::progress_watch watch_;
  process::ticker ticker_;  // last: it looks
};

}  // namespace penstock::session
