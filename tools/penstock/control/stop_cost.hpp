// What a stop has cost: processes that were killed, and a position that was not saved. Pure; used by stop --wait.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace penstock::cli {

class stop_cost {
 public:
  /// Without a record nothing is known.
  stop_cost() = default;
  /// `ended`: past_session::summary() with its "id". `events`: those of its record. `ends`: which process
  /// ends with the session, as in its answer; only `penstock run` saves a position.
  stop_cost(const nlohmann::ordered_json& ended, const nlohmann::ordered_json& events, const std::string& ends);

  /// {"killed": [{"target": "worker/0", "pid": 17, "text": "..."}], "position_saved": false}; null: there is no position to save.
  [[nodiscard]] nlohmann::ordered_json as_json() const;
  /// A line for each of the two; empty if it cost nothing.
  [[nodiscard]] std::string for_people() const;

 private:
  std::string id_;
  nlohmann::ordered_json killed_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json position_saved_;
};

}  // namespace penstock::cli
