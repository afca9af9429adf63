// A session that has ended, read from its record: answers the reading verbs as the session itself did. Used by session_link, so
// that status, describe, deaths, events and logs need not know the difference.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/control/socket_place.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

class past_session {
 public:
  /// From the lines of a record. `last_written`: when the last one was, for a session that was killed and could not say when it
  /// ended. Lines that are torn or unknown are passed over.
  past_session(const std::vector<std::string>& lines, std::string last_written);

  /// What the control socket would have answered: {"ok": true, "result": ...} or {"ok": false, "exit": 5, ...}.
  [[nodiscard]] nlohmann::ordered_json answer(const nlohmann::ordered_json& question) const;

  /// {"session", "pid", "started", "ended", "outcome", "failure", ...}: what `sessions` lists. Outcome: finished, stopped, failed,
  /// or died if the session could not say how it ended.
  [[nodiscard]] nlohmann::ordered_json summary() const;

  /// Which rank of which launch it was.
  [[nodiscard]] std::optional<control::rank_note> rank() const;

 private:
  [[nodiscard]] nlohmann::ordered_json status() const;
  [[nodiscard]] nlohmann::ordered_json deaths() const;
  [[nodiscard]] nlohmann::ordered_json events_after(const nlohmann::ordered_json& question) const;
  [[nodiscard]] nlohmann::ordered_json logs(const nlohmann::ordered_json& question) const;

  nlohmann::ordered_json header_ = nlohmann::ordered_json::object();
  nlohmann::ordered_json status_;  // null: it ended before there was one
  std::vector<nlohmann::ordered_json> events_;
  std::vector<nlohmann::ordered_json> logs_;
  std::string ended_;
  bool died_ = true;
};

[[nodiscard]] result<past_session> read_past(const std::filesystem::path& record);
/// read_past() and answer().
[[nodiscard]] result<nlohmann::ordered_json> ask_record(const std::filesystem::path& record,
                                                        const nlohmann::ordered_json& question);

}  // namespace penstock::cli
