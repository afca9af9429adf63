#include "tools/penstock/watch/event_times.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>

namespace penstock::cli {
namespace {

std::string as_utc(std::chrono::system_clock::time_point when) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count();
  const std::time_t seconds = us / 1'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[40];
  const std::size_t bytes = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return std::string(text, bytes) + fmt::format(".{:06}Z", us % 1'000'000);
}

/// In the journal's format, a time as an operator writes it, UTC: "2026-11-20", "2026-11-20 14:05", "2026-11-20T14:05:00.5Z". Not a time_point,
/// which ends in 2262.
std::optional<std::string> written_time(std::string text) {
  constexpr std::size_t date_columns = 10;
  if (text.ends_with('Z')) text.pop_back();
  if (text.size() > date_columns && text[date_columns] == ' ') text[date_columns] = 'T';
  if (text.find('-') != 4) return std::nullopt;  // times are compared as text
  std::tm parts{};
  const char* rest = nullptr;
  bool has_seconds = true;
  for (const char* const form : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
    parts = {};
    if (rest = ::strptime(text.c_str(), form, &parts); rest != nullptr) break;
    has_seconds = false;
  }
  if (rest == nullptr) return std::nullopt;
  const std::string fraction = rest;
  const bool is_fraction = has_seconds && fraction.size() > 1 && fraction[0] == '.' && fraction.find_first_not_of("0123456789", 1) == std::string::npos;
  std::tm checked = parts;
  ::timegm(&checked);  // makes 1 March of 30 February
  if ((!fraction.empty() && !is_fraction) || checked.tm_mday != parts.tm_mday || checked.tm_min != parts.tm_min) return std::nullopt;
  char whole[40];
  return std::string(whole, std::strftime(whole, sizeof whole, "%Y-%m-%dT%H:%M:%S", &parts)) + fraction;
}

}  // namespace

result<std::string> since_of(const std::string& text, std::chrono::system_clock::time_point now) {
  if (text.empty()) return std::string();
  if (const auto span = parse_duration(text))
    return as_utc(now - std::chrono::duration_cast<std::chrono::system_clock::duration>(*span));
  const std::string today = as_utc(now).substr(0, 11);
  const bool has_date = text.find('-') != std::string::npos;
  if (auto when = written_time(has_date ? text : today + text)) return std::move(*when);
  return refuse(errc::usage, "'{}' is not a time: write 10m, 14:05 or 2026-11-20T14:05:00 (UTC)",
                printable(text));
}

std::string time_since(const std::string& utc, std::chrono::system_clock::time_point now) {
  const auto when = time_of_utc(utc);
  if (!when) return "-";
  const auto passed = std::chrono::floor<std::chrono::seconds>(now - *when);
  return duration_for_people(std::max(passed, std::chrono::seconds(1)));
}

std::optional<std::chrono::system_clock::time_point> time_of_utc(const std::string& text) {
  std::tm parts{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  double fraction = 0;
  if (*rest == '.') std::sscanf(rest, "%lf", &fraction);
  const auto whole = std::chrono::system_clock::from_time_t(::timegm(&parts));
  return whole + std::chrono::microseconds(static_cast<std::int64_t>(fraction * 1e6 + 0.5));
}

}  // namespace penstock::cli
