// Remembers quarantined samples in [quarantine] file from run to run. Lives with the session actor, which may
// wait for the disk; without a file it does nothing.
#pragma once

#include "actors/protocol/local/scheduler_messages.hpp"
#include "runtime/base/result.hpp"

#include <penstock/report.hpp>

#include <string>
#include <vector>

namespace penstock::session {

class quarantine_keeper {
 public:
  quarantine_keeper(std::string file, std::string session)
      : file_(std::move(file)), session_(std::move(session)) {}

  /// The samples of this dataset that are known to kill workers. Refuses (errc::io) a file that cannot be
  /// read, or to which nothing could be added.
  result<std::vector<quarantine_report>> open(const std::string& fingerprint);
  /// Returns when it is on the disk. A failure is logged: the run goes on, it only is not remembered.
  void keep(const scheduler::lost_sample& lost);
  void release(std::uint64_t sample);

 private:
  void append(quarantine_report sample, bool released);

  std::string file_;
  std::string session_;
  std::string fingerprint_;
};

}  // namespace penstock::session
