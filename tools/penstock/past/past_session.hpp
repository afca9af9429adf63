// An ended session, read from its record: answers the reading verbs as the session itself did. Used by
// session_link, so that status, why, describe, deaths, events and logs need not know the difference.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/control/socket_place.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

class past_session {
 public:
  /// Reads the lines of a record. `last_written`: time of the last write, for a killed session, which could
  /// not record its end. Skips torn and unknown lines.
  past_session(const std::vector<std::string>& lines, std::string last_written);

  /// What the control socket would have answered: {"ok": true, "result": ...} or {"ok": false, "exit": 5, ...}.
  [[nodiscard]] nlohmann::ordered_json answer(const nlohmann::ordered_json& question) const;

  /// {"session", "pid", "started", "ended", "outcome", "failure", "reason", ...}: the entry in `sessions`. Outcome:
  /// finished, stopped, failed, or died if the session could not record its end.
  [[nodiscard]] nlohmann::ordered_json summary() const;

  /// Sets which of the session's files exist: written_files::as_json().
  void files_are(const nlohmann::ordered_json& written);
  /// Marks a session that has not ended: it is suspended, and cannot answer itself.
  void is_suspended();
  /// Notes that the machine was started after the last write, which explains why a session has no recorded end.
  void machine_has_stopped();
  [[nodiscard]] bool has_no_end() const noexcept { return died_; }
  /// When the session's first batch was requested: a UTC time; null if it is unknown.
  [[nodiscard]] nlohmann::ordered_json started() const;

  /// How long before the session's end its last status was recorded; empty: unknown.
  [[nodiscard]] std::optional<double> status_age_seconds() const;

  /// The session's rank and launch.
  [[nodiscard]] std::optional<control::rank_note> rank() const;

 private:
  void note_workers(const nlohmann::ordered_json& status);
  [[nodiscard]] nlohmann::ordered_json status() const;
  [[nodiscard]] nlohmann::ordered_json why() const;
  [[nodiscard]] nlohmann::ordered_json deaths() const;
  [[nodiscard]] std::uint64_t killed_at_stop() const;
  [[nodiscard]] std::uint64_t deaths_of(bool workers) const;
  [[nodiscard]] std::string reason() const;
  [[nodiscard]] nlohmann::ordered_json end_event(std::uint64_t number) const;
  [[nodiscard]] nlohmann::ordered_json events_after(const nlohmann::ordered_json& question) const;
  [[nodiscard]] nlohmann::ordered_json logs(const nlohmann::ordered_json& question) const;

  nlohmann::ordered_json header_ = nlohmann::ordered_json::object();
  nlohmann::ordered_json quarantine_;  // null: nothing was quarantined
  nlohmann::ordered_json status_;      // null: the session ended before it recorded a status
  nlohmann::ordered_json why_;         // null: nothing was measured
  std::map<std::uint64_t, nlohmann::ordered_json>
      last_seen_;  // each worker, as in the last status in which it ran
  std::vector<nlohmann::ordered_json> events_;
  std::vector<nlohmann::ordered_json> logs_;
  std::string status_time_;  // when status_ was recorded
  std::string ended_;
  bool died_ = true;
  bool suspended_ = false;
  bool machine_stopped_ = false;
  std::string process_end_;  // how the process ended, according to its parent; empty: unknown
};

[[nodiscard]] result<past_session> read_past(const std::filesystem::path& record);
/// Calls read_past(), and then answer() with the question.
[[nodiscard]] result<nlohmann::ordered_json> ask_record(const std::filesystem::path& record,
                                                        const nlohmann::ordered_json& question);

}  // namespace penstock::cli
