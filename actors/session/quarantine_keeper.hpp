// Remembers quarantined samples in [quarantine] file from run to run; without a file it does nothing. Lives
// with the session actor. The file may lie on a disk that does not answer, or be locked by somebody who does
// not let go: it is read and written on a thread of its own, and nobody waits for it longer than a deadline.
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
  std::chrono::milliseconds reading{10'000};  ///< at the start of the stream, which needs to know
  std::chrono::milliseconds closing{2'000};   ///< at the end of the session
};

class quarantine_keeper {
 public:
  quarantine_keeper(std::string file, std::string session, quarantine_deadlines deadlines = {});
  /// close()
  ~quarantine_keeper();

  /// The samples of this dataset that are known to kill workers. Refuses (errc::io) a file that cannot be
  /// read or is no regular one, or to which nothing could be added; errc::timed_out when it has not answered
  /// in time.
  result<std::vector<quarantine_report>> open(const std::string& fingerprint);
  /// Never waits. What cannot be written is logged: the run goes on, it only is not remembered.
  void keep(const scheduler::lost_sample& lost);
  void release(std::uint64_t sample);
  /// Waits until all of it is on the disk, or the time is over: then an error in the log names the samples
  /// that may be missing. Nothing can be kept afterwards.
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
