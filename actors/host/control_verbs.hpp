// The verbs of the control socket: each request reads the board or becomes a message to an actor.
#pragma once

#include "runtime/base/batch_times.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/pauser.hpp"
#include "runtime/base/work_kind.hpp"
#include "runtime/control/control_server.hpp"
#include "runtime/process/log_store.hpp"
#include "runtime/supervision/awaited.hpp"
#include "runtime/telemetry/event_journal.hpp"
#include "runtime/telemetry/limit_advice.hpp"

#include <penstock/report.hpp>

#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <optional>

namespace penstock::host {

/// What limits the run, and what to do about it.
struct limits_told {
  telemetry::limit_reading reading;
  telemetry::limit_advice advice;
  telemetry::limit_context context;
};

/// The operations on a session that the verbs need. Called on the io thread; none waits for an actor.
struct session_controls {
  work_kind work = work_kind::samples;
  std::function<session_status()> status;
  std::function<supervision::progress_facts()> progress;
  std::function<std::vector<death_report>()> deaths;
  std::function<std::vector<owner_death_report>()> owner_deaths;
  std::function<std::string()> metrics;  ///< the page for Prometheus; empty in a record
  std::function<double()> waited_seconds;  ///< how long the consumer has waited for batches
  std::function<std::optional<steady_time>()> waits_since{};  ///< when the consumer's wait in progress began
  /// These two call ending::killed_in() and ending::stopping_for().
  std::function<std::optional<nanoseconds>(bool some_work)> killed_in{};
  std::function<std::optional<nanoseconds>()> stopping_for{};
  std::function<limits_told()> limits;
  std::function<std::map<std::uint32_t, double>()> worker_rates;  ///< board::worker_rates()
  std::function<nlohmann::ordered_json()> tuning;
  std::shared_ptr<const batch_times> times;
  std::function<telemetry::event_reading(std::uint64_t after, std::size_t limit)> events;
  std::function<std::vector<quarantine_report>()> quarantine;
  /// Lifts a sample's quarantine; with `for_good`, also removes it from the quarantine file. False: the
  /// sample is not quarantined.
  std::function<bool(std::uint64_t sample, bool for_good)> lift_quarantine;
  std::function<void(bool at_once, const std::string& from)> stop;  ///< `from`: the process that ran `penstock stop`; may be empty
  std::function<bool(bool paused, pauser by)> pause;     ///< false: it was in that state already
  std::function<std::optional<pauser>()> paused_by{};    ///< empty: it is not paused
  std::function<void(std::optional<std::uint32_t> workers)> scale;  ///< none: tune the number
  std::function<void(std::uint32_t worker, bool at_once)> restart;
  std::function<void()> restart_owner;  ///< empty if the owner is not a separate process
  std::function<void(std::uint32_t worker)> drain;
  /// Returns false if there is no such host. Null if the session has no loader hosts.
  std::function<bool(const std::string& name)> drain_host{};
  /// Refuses (errc::usage) a number that the host does not offer.
  std::function<result<void>(const std::string& name, std::uint32_t workers)> scale_host{};
  const process::log_store* logs = nullptr;
  std::function<const char*()> ends;  ///< what ends with the session: "session", "process" or "parent"
  std::map<std::string, std::string> files{};  ///< paths of files that the program writes, by kind
  std::string id{};                            ///< id of the session's record
  std::uint32_t workers_max = 0;      ///< the place after these belongs to the sacrificial worker
};

[[nodiscard]] control::request_handler make_request_handler(session_controls controls);

}  // namespace penstock::host
