// The cost of a stop: processes that were killed, and a position that was not saved. Used by stop --wait, for a session and for a group,
// and by run and launch.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

/// The message of a run that was stopped without --state. `saver`: the verb that has --state, "run" or "launch".
[[nodiscard]] std::string position_not_saved(std::string_view saver);

/// How to continue a run that died, and so wrote no report: "`penstock run photos.toml --state run.state` continues there, ...". Empty if
/// it ended normally, or has no state, or a later run has written that state. `ended`: past_session::summary().
[[nodiscard]] std::string how_to_resume(const nlohmann::ordered_json& ended);

class stop_cost {
 public:
  /// Without a record: everything is unknown.
  stop_cost() = default;
  /// `ended`: past_session::summary() with its "id". `events`: the events in its record. `ends`: which process
  /// ends with the session, from its answer to "stop". Only `penstock run` saves a position.
  stop_cost(const nlohmann::ordered_json& ended, const nlohmann::ordered_json& events, const std::string& ends);

  /// {"killed": [{"target": "worker/0", "pid": 17, "text": "..."}], "position_saved": false}; null: there is no position to save.
  [[nodiscard]] nlohmann::ordered_json as_json() const;
  /// A line about the killed processes; empty if there are none.
  [[nodiscard]] std::string killed_for_people() const;
  /// A line about the position; empty if it was saved, or if there is none.
  [[nodiscard]] std::string position_for_people() const;
  /// how_to_resume() as a line, or empty.
  [[nodiscard]] std::string resume_for_people() const;

 private:
  std::string id_;
  std::string resume_;
  const char* saver_ = "run";  // the verb with --state
  nlohmann::ordered_json killed_ = nlohmann::ordered_json::array();
  std::string without_told_work_;  // the text about the last killed process
  nlohmann::ordered_json position_saved_;
};

/// Reads the session's record; without one, everything is unknown. `ends`: as above.
[[nodiscard]] stop_cost read_stop_cost(const std::filesystem::path& record, const std::string& ends);

}  // namespace penstock::cli
