// Keeps a session's record current, so that its events, deaths, output and last status remain readable after
// it has ended or was killed. The lines are answers of the control socket's verbs. A separate thread, which
// no other thread waits for, writes events as they happen, and output and status once a second.
//
//   {"record": {...}}   who: session, pid, when it began
//   {"event": {...}}    as printed by `penstock events --json`
//   {"log": {...}}      a line of output, as printed by `penstock logs --json`
//   {"quarantine": ..}  as printed by `penstock quarantine --json`, when it has changed; the last one counts
//   {"status": {...}, "time": "TIME"}   the last one counts
//   {"why": {...}}      as printed by `penstock why --json`; the last one counts
//   {"ended": "TIME"}   missing if the session was killed
#pragma once

#include "runtime/base/work_kind.hpp"
#include "runtime/control/control_server.hpp"
#include "runtime/control/session_record.hpp"
#include "runtime/control/socket_place.hpp"
#include "runtime/telemetry/event_journal.hpp"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace penstock::host {

struct record_source {
  std::string session;
  std::chrono::system_clock::time_point started;
  std::uint32_t workers_max = 0;  ///< the place after these belongs to the sacrificial worker
  work_kind work = work_kind::samples;
  std::optional<control::rank_note> rank{};
  std::shared_ptr<telemetry::event_journal> journal;
  /// Answers status, why, events, logs and quarantine. Called on the keeper's thread, and in stop(); must not block.
  control::request_handler answer;
  std::size_t bytes_max = control::record_bytes_max;  ///< maximum size of the file
};

class record_keeper {
 public:
  explicit record_keeper(record_source source);
  ~record_keeper() { stop(); }
  record_keeper(const record_keeper&) = delete;
  record_keeper& operator=(const record_keeper&) = delete;

  /// Writes what remains and the end, and does not use the source afterwards. Calls give_up() on the
  /// journal, which ends all waits for events. Waits at most half a second for the file system.
  void stop() noexcept;

 private:
  struct work;
  std::shared_ptr<work> work_;
  std::thread thread_;
};

}  // namespace penstock::host
