// Times of events and ended sessions: parses --since and the UTC timestamps of the journal.
#pragma once

#include "runtime/base/result.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace penstock::cli {

/// Converts "10m", "14:05" or "2026-11-20T14:05:00Z" to the journal's UTC format, for comparison as text;
/// empty stays empty. Refuses (errc::usage) what is not a time, such as 25:99.
result<std::string> since_of(const std::string& text, std::chrono::system_clock::time_point now);

/// "2026-11-20T14:04:18.123456Z".
[[nodiscard]] std::optional<std::chrono::system_clock::time_point> time_of_utc(const std::string& text);

/// The time since then, at least a second: "8 h 3 m"; "-" if the text is not a time.
[[nodiscard]] std::string time_since(const std::string& utc, std::chrono::system_clock::time_point now = std::chrono::system_clock::now());

}  // namespace penstock::cli
