#include "tools/penstock/watch/event_times.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>

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

}  // namespace

result<std::string> since_of(const std::string& text, std::chrono::system_clock::time_point now) {
  if (text.empty()) return std::string();
  if (const auto span = parse_duration(text))
    return as_utc(now - std::chrono::duration_cast<std::chrono::system_clock::duration>(*span));
  unsigned hour = 0;
  unsigned minute = 0;
  unsigned second = 0;
  int used = 0;
  const std::string today = as_utc(now).substr(0, 11);
  if (std::sscanf(text.c_str(), "%2u:%2u%n:%2u%n", &hour, &minute, &used, &second, &used) >= 2 &&
      static_cast<std::size_t>(used) == text.size()) {
    return today + fmt::format("{:02}:{:02}:{:02}", hour, minute, second);
  }
  std::string date = text;
  if (date.size() > 10 && date[10] == ' ') date[10] = 'T';
  unsigned year = 0;
  unsigned month = 0;
  unsigned day = 0;
  if (std::sscanf(date.c_str(), "%4u-%2u-%2u", &year, &month, &day) == 3) return date;
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
