// Keeps a session's record current, so that its events, deaths, output and last status can be read when it has ended or was
// killed. Its lines are the answers of the control socket's verbs. Events are written as they happen, output and status once a
// second, by a thread that nothing waits for.
//
//   {"record": {...}}   who: session, pid, when it began
//   {"event": {...}}    as `penstock events --json` prints it
//   {"log": {...}}      a line of output, as `penstock logs --json` prints it
//   {"status": {...}}   the last one counts
//   {"ended": "TIME"}   missing if the session was killed
#pragma once

#include "runtime/control/control_server.hpp"
#include "runtime/control/session_record.hpp"
#include "runtime/control/socket_place.hpp"
#include "runtime/telemetry/event_journal.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace penstock::session {

struct record_source {
  std::string session;
  std::uint32_t workers_max = 0;  ///< the place after these is the sacrificial worker's
  bool of_jobs = false;           ///< a pool's
  std::optional<control::rank_note> rank{};
  std::shared_ptr<telemetry::event_journal> journal;
  /// Answers status, events and logs. Called on the keeper's thread, and in stop(); must not block.
  control::request_handler answer;
  std::size_t bytes_max = control::record_bytes_max;  ///< of the file
};

class record_keeper {
 public:
  explicit record_keeper(record_source source);
  ~record_keeper() { stop(); }
  record_keeper(const record_keeper&) = delete;
  record_keeper& operator=(const record_keeper&) = delete;

  /// Writes what happened so far, and the end. The source is not used afterwards. Nobody may wait for the journal any more: it
  /// gives up. Waits for the file system half a second at most.
  void stop() noexcept;

 private:
  struct work;
  std::shared_ptr<work> work_;
  std::thread thread_;
};

}  // namespace penstock::session
