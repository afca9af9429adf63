// Keeps quarantined samples in [quarantine] file from run to run; without a file it does nothing. Owned by
// the session actor. The file may be on a disk that does not respond, or locked by another process forever: a
// separate thread reads and writes it, and no wait for it exceeds a deadline.
#pragma once

#include "actors/protocol/local/scheduler_messages.hpp"
#include "runtime/base/result.hpp"
#include "runtime/process/side_thread.hpp"

#include <penstock/report.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace penstock::session {

struct quarantine_deadlines {
  std::chrono::milliseconds reading{10'000};  ///< at the start of the stream, which needs the list
  std::chrono::milliseconds closing{2'000};   ///< when the session ends
};

class quarantine_keeper {
 public:
  quarantine_keeper(std::string file, std::string session, quarantine_deadlines deadlines = {});
  /// Calls close().
  ~quarantine_keeper();

  /// The samples of this dataset that are known to kill workers. Fails with errc::io if the file is not a
  /// regular one or cannot be read or appended to, and with errc::timed_out if it does not respond in time.
  result<std::vector<quarantine_report>> open(const std::string& fingerprint);
  /// Never waits. A write error is logged and the run continues.
  void keep(const scheduler::lost_sample& lost);
  void release(std::uint64_t sample);
  /// Waits until everything is on disk, but not beyond the closing deadline; an error in the log then names
  /// the samples that may be missing. Nothing can be added afterwards.
  void close();

 private:
  struct writing;

  void append(quarantine_report sample, bool released);

  std::string file_;
  std::string session_;
  std::string fingerprint_;
  quarantine_deadlines deadlines_;
  bool closed_ = false;
  std::shared_ptr<writing> writing_;
  process::side_thread thread_;
};

}  // namespace penstock::session
