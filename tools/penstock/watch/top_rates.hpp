// The rates on the screen of `penstock top`: between two answers to "pipeline", or those that one answer reports. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace penstock::cli {

struct top_rates {
  bool known = false;  ///< the others are set
  double seconds = 0;  ///< the time that they cover
  double samples = 0;
  double batches = 0;
  double bytes = 0;
  double jobs = 0;  ///< for a pool
};

/// The number with this key; 0 if there is none.
[[nodiscard]] double number_in(const nlohmann::ordered_json& from, const char* key);
/// Whether these are answers of different times.
[[nodiscard]] bool spans_time(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);
/// Requires spans_time().
[[nodiscard]] top_rates rates_between(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);
/// What a status says about its last 10 s.
[[nodiscard]] top_rates rates_reported(const nlohmann::ordered_json& status);
/// "-" if the rates are unknown.
[[nodiscard]] std::string text_of_rate(const top_rates& of, double rate);
/// A worker's rate between the answers. If there is only one answer, or the
/// worker is new, the rate that the answer reports. "-": unknown.
[[nodiscard]] std::string worker_rate(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now, const nlohmann::ordered_json& worker);

}  // namespace penstock::cli
