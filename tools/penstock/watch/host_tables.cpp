#include "tools/penstock/watch/host_tables.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t lost_shown = 3;

std::string seconds_text(double seconds) {
  if (seconds < 119.5) return fmt::format("{:.0f} s", seconds);
  return duration_for_people(std::chrono::seconds(static_cast<std::int64_t>(std::llround(seconds))));
}

/// "10.0.0.7:7077", "a:1 and b:2", "a:1 and 7 others".
std::string addresses(const json& called) {
  if (called.size() == 1) return text_of(called[0]);
  if (called.size() == 2) return text_of(called[0]) + " and " + text_of(called[1]);
  return fmt::format("{} and {} others", text_of(called[0]), called.size() - 1);
}

/// "hosts join at 0.0.0.0:7077; calling loader-1:7077".
std::string ways_in(const json& s) {
  std::string text;
  if (s.value("hosts_join_at", json()).is_string()) text = "hosts join at " + text_of(s.at("hosts_join_at"));
  if (const json called = list_in(s, "hosts_called"); !called.empty())
    text += (text.empty() ? "calling " : "; calling ") + addresses(called);
  return text;
}

std::string waiting_text(const json& s) {
  const json waits = s.value("waits_for_hosts", json());
  if (!waits.is_object()) return "";
  return fmt::format("waiting for a loader host for {}, at most {}", seconds_text(waits.at("seconds").get<double>()),
                     seconds_text(waits.at("limit_seconds").get<double>()));
}

std::size_t ready_of(const json& s, const json& host) {
  const json& ids = host.at("workers");
  return static_cast<std::size_t>(std::ranges::count_if(s.at("workers"), [&](const json& w) {
    return w.at("state") == "ready" && std::ranges::find(ids, w.at("id")) != ids.end();
  }));
}

std::string cpu_text(const json& host) {
  const json cores = host.value("cpu_cores", json());
  return cores.is_number() ? fmt::format("{:.1f}", cores.get<double>()) : "-";
}

std::vector<table_column> columns() {
  return {{"host", column_side::left, true},   {"state"},
          {"workers", column_side::right},     {"samples/s", column_side::right},
          {"MiB/s", column_side::right},        {"trip", column_side::right},
          {"cores", column_side::right, false, true},       {"address", column_side::left, false, true}};
}

/// A row of the table; rates have their own units, so that columns stay narrow.
std::vector<std::string> row_of(const json& s, const json& host) {
  const double trip = host.at("round_trip_seconds").get<double>();
  return {text_of(host.at("name")),
          text_of(host.at("state")),
          fmt::format("{}/{}", ready_of(s, host), host.at("workers").size()),
          rate_text(host.at("samples_per_second").get<double>()),
          rate_text(host.at("bytes_per_second").get<double>() / static_cast<double>(MiB)),
          trip > 0 ? duration_for_people(nanoseconds(static_cast<std::int64_t>(trip * 1e9))) : "-",
          cpu_text(host),
          text_of(host.at("address"))};
}

/// "0-3,5".
std::string ranks_text(const json& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1].get<std::uint64_t>() == ranks[last].get<std::uint64_t>() + 1) ++last;
    text += (text.empty() ? "" : ",") + text_of(ranks[first]) + (last > first ? "-" + text_of(ranks[last]) : "");
    first = last + 1;
  }
  return text;
}

/// A pool has "jobs/s", a loader "batches/s", a group the ranks that use each host.
std::string table_of(const json& s, const std::vector<json>& hosts, std::size_t width) {
  std::vector<std::vector<std::string>> rows;
  for (const json& host : hosts) rows.push_back(row_of(s, host));
  std::vector<table_column> all = columns();
  all[3].title = fmt::format("{}/s", words_for(kind_of(s)).items);
  if (std::ranges::any_of(hosts, [](const json& host) { return host.contains("ranks"); })) {
    all.insert(all.begin() + 1, {"ranks"});
    for (std::size_t i = 0; i < hosts.size(); ++i) rows[i].insert(rows[i].begin() + 1, ranks_text(hosts[i].at("ranks")));
  }
  return text_table(all, rows, width);
}

/// "lost: beta (10.0.0.7:4711) 12 s ago: it was silent for 5 s", latest first.
std::vector<std::string> lost_lines(const json& s) {
  const json found = list_in(s, "hosts_lost");
  std::vector<json> lost(found.begin(), found.end());
  std::ranges::stable_sort(lost, {}, [](const json& one) { return one.at("seconds").get<double>(); });
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < std::min(lost.size(), lost_shown); ++i)
    lines.push_back(fmt::format("lost: {} ({}) {}", text_of(lost[i].at("name")), text_of(lost[i].at("address")), lost_in_words(lost[i])));
  if (lost.size() > lost_shown) lines.push_back(fmt::format("lost: {} more", counted(lost.size() - lost_shown, "host")));
  return lines;
}

/// "97 other hosts: 194/194 workers, 1200 samples/s, 45.2 MiB/s".
std::string summary_of(const json& s, const std::vector<json>& hosts, bool some_are_shown) {
  std::size_t ready = 0;
  std::size_t workers = 0;
  double samples = 0;
  double bytes = 0;
  for (const json& host : hosts) {
    ready += ready_of(s, host);
    workers += host.at("workers").size();
    samples += host.at("samples_per_second").get<double>();
    bytes += host.at("bytes_per_second").get<double>();
  }
  return fmt::format("{}: {}/{} workers, {} {}/s, {} MiB/s", counted(hosts.size(), some_are_shown ? "other host" : "host"), ready, workers,
                     rate_text(samples), words_for(kind_of(s)).items, rate_text(bytes / static_cast<double>(MiB)));
}

/// Hosts that drain or lack workers come first, then the others; each group sorted by name.
std::vector<json> hosts_in_order_of_interest(const json& s) {
  const json found = list_in(s, "hosts");
  std::vector<json> hosts(found.begin(), found.end());
  std::ranges::stable_sort(hosts, {}, [&](const json& host) {
    const bool well = host.at("state") == "ready" && ready_of(s, host) == host.at("workers").size();
    return std::pair(well, text_of(host.at("name")));
  });
  return hosts;
}

}  // namespace

std::string lost_in_words(const json& lost) {
  return fmt::format("{} ago: {}", seconds_text(lost.at("seconds").get<double>()), text_of(lost.at("why")));
}

json list_in(const json& status, const char* key) {
  const json found = status.is_object() ? status.value(key, json()) : json();
  return found.is_array() ? found : json::array();
}

bool has_hosts(const json& s) {
  return s.value("hosts_join_at", json()).is_string() || !list_in(s, "hosts_called").empty() || !list_in(s, "hosts").empty();
}

std::string hosts_for_people(const json& s, std::size_t width) {
  if (!has_hosts(s) || s.at("state") == "ended") return "";
  const json found = list_in(s, "hosts");
  std::string out;
  const auto line = [&](const std::string& text) { out += fitted(text, width) + "\n"; };
  const std::string waits = waiting_text(s);
  if (const std::string ways = ways_in(s); !ways.empty() || !waits.empty())
    line(ways + (ways.empty() || waits.empty() ? "" : "; ") + waits);
  std::vector<json> hosts(found.begin(), found.end());
  std::ranges::stable_sort(hosts, {}, [](const json& host) { return text_of(host.at("name")); });
  if (!hosts.empty()) out += table_of(s, hosts, width);
  for (const std::string& text : lost_lines(s)) line(text);
  return out;
}

std::vector<std::string> host_lines(const json& s, std::size_t lines_max, std::size_t width) {
  std::vector<std::string> lines;
  if (!has_hosts(s) || lines_max == 0) return lines;
  const std::vector<json> hosts = hosts_in_order_of_interest(s);
  if (hosts.empty()) {
    const std::string waits = waiting_text(s);
    const std::vector<std::string> lost = lost_lines(s);
    const std::string ways = ways_in(s);
    lines.push_back(fitted("hosts    " + (waits.empty() ? "none: " : waits + "; ") + ways, width));
    if (!lost.empty() && lines_max > 1) lines.push_back(fitted(lost.front(), width));
    return lines;
  }
  if (lines_max < 3) return {fitted(summary_of(s, hosts, false), width)};
  const std::size_t room = lines_max - 1;
  const std::size_t shown = hosts.size() <= room ? hosts.size() : room - 1;
  const auto middle = hosts.begin() + static_cast<std::ptrdiff_t>(shown);
  for (const std::string& line : lines_in(table_of(s, {hosts.begin(), middle}, width))) lines.push_back(fitted(line, width));
  if (shown < hosts.size()) lines.push_back(fitted(summary_of(s, {middle, hosts.end()}, true), width));
  return lines;
}

}  // namespace penstock::cli
