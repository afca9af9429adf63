#include "tools/penstock/group/group_tables.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/host_tables.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <vector>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

const json& status_of(const json& rank) {
  static const json none;
  const auto at = rank.find("status");
  return at != rank.end() && at->is_object() ? *at : none;
}

std::uint64_t count_in(const json& status, const char* field) {
  const auto at = status.find(field);
  return at != status.end() && at->is_number_unsigned() ? at->get<std::uint64_t>() : 0;
}

bool has_ended(const json& status) {
  return status.is_object() && status.value("state", "") == "ended";
}

/// Progress through the whole stream: a restarted rank only has the rest of it to deliver.
std::string progress_of(const json& status) {
  const std::uint64_t before = count_in(status, "samples_before");
  const std::uint64_t expected = count_in(status, "samples_expected");
  if (expected == 0) return "-";
  const double part =
      static_cast<double>(before + count_in(status, "samples_done")) / static_cast<double>(before + expected);
  return percent_of(part);
}

std::optional<double> rate_of(const json& status) {
  const json rate = status.value("rate", json());
  return rate.is_number() && is_moving(status) ? std::optional(rate.get<double>()) : std::nullopt;
}

std::string in_capitals(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string workers_of(const json& status) {
  std::size_t running = 0;
  const auto at = status.find("workers");
  if (at == status.end() || !at->is_array()) return "-";
  for (const json& w : *at) running += w.value("pid", json()).is_number() ? 1 : 0;
  return std::to_string(running);
}

/// What the rank waits for, if it makes no progress.
std::string remark_of(const json& status) {
  const json stalled = status.value("stalled", json());
  return stalled.is_object() ? stalled.value("text", std::string()) : std::string();
}

std::vector<std::string> row_of(const json& rank) {
  const std::string number_of_rank = rank.at("rank").dump();
  const json& s = status_of(rank);
  if (!s.is_object()) return {number_of_rank, "no answer", "-", "-", "-", "-", "-", "-", rank.value("error", std::string())};
  const auto rate = rate_of(s);
  return {number_of_rank,
          has_ended(s) ? s.value("outcome", "ended") : s.value("state", "?"),
          std::to_string(count_in(s, "pid")),
          std::to_string(count_in(s, "epoch")),
          std::to_string(count_in(s, "batches_delivered")),
          progress_of(s),
          rate ? rate_text(*rate) : "-",
          workers_of(s),
          remark_of(s)};
}

// ---- loader hosts -----------------------------------------------------------------------------------------

/// The entry of this host's process in `hosts`; adds it if it is new.
json& host_in(json& hosts, const json& host) {
  const auto same = [&](const json& one) {
    return one.at("name") == host.at("name") && one.at("pid") == host.at("pid") && one.at("address") == host.at("address");
  };
  if (const auto at = std::ranges::find_if(hosts, same); at != hosts.end()) return *at;
  json fresh = host;
  fresh["workers"] = json::array();
  fresh["ranks"] = json::array();
  for (const char* key : {"samples_per_second", "bytes_per_second", "round_trip_seconds"}) fresh[key] = 0.0;
  fresh["cpu_cores"] = nullptr;
  return hosts.emplace_back(std::move(fresh));
}

void add_host(json& to, const json& host, const json& rank) {
  json& one = host_in(to["hosts"], host);
  one["ranks"].push_back(rank.at("rank"));
  if (host.at("state") != "ready") one["state"] = host.at("state");
  for (const char* key : {"samples_per_second", "bytes_per_second"})
    one[key] = one.at(key).get<double>() + host.at(key).get<double>();
  one["round_trip_seconds"] = std::max(one.at("round_trip_seconds").get<double>(), host.at("round_trip_seconds").get<double>());
  if (const json cores = host.value("cpu_cores", json()); cores.is_number())
    one["cpu_cores"] = cores.get<double>() + (one.at("cpu_cores").is_number() ? one.at("cpu_cores").get<double>() : 0.0);
  // Each rank numbers its workers from 0.
  for (const json& w : list_in(status_of(rank), "workers")) {
    if (std::ranges::find(host.at("workers"), w.value("id", json())) == host.at("workers").end()) continue;
    const std::size_t id = to["workers"].size();
    to["workers"].push_back({{"id", id}, {"state", w.value("state", json())}});
    one["workers"].push_back(id);
  }
}

/// Adds `value` unless the list has it. Compares whole values or, if there are keys, only the fields with these names.
void add_new(json& list, const json& value, std::initializer_list<const char*> keys) {
  const auto same = [&](const json& one) {
    return keys.size() == 0 ? one == value : std::ranges::all_of(keys, [&](const char* key) { return one.at(key) == value.at(key); });
  };
  if (std::ranges::none_of(list, same)) list.push_back(value);
}

/// The hosts of all ranks in the form of one session's status. Ranks that call the same host share it, so it is listed once.
json hosts_of(const json& group) {
  std::vector<std::string> join_at;
  json all{{"state", "ok"}, {"hosts", json::array()}, {"workers", json::array()}, {"hosts_called", json::array()}, {"hosts_lost", json::array()}};
  for (const json& rank : group.at("ranks")) {
    const json& s = status_of(rank);
    if (!s.is_object() || has_ended(s)) continue;
    if (s.value("jobs", json()).is_object()) all["jobs"] = json::object();
    for (const json& host : list_in(s, "hosts")) add_host(all, host, rank);
    for (const json& called : list_in(s, "hosts_called")) add_new(all["hosts_called"], called, {});
    for (const json& lost : list_in(s, "hosts_lost")) add_new(all["hosts_lost"], lost, {"name", "address"});
    if (const json at = s.value("hosts_join_at", json()); at.is_string()) join_at.push_back(at.get<std::string>());
    const json waits = s.value("waits_for_hosts", json());
    if (waits.is_object() && (!all.contains("waits_for_hosts") || all["waits_for_hosts"].at("seconds") < waits.at("seconds")))
      all["waits_for_hosts"] = waits;
  }
  if (!join_at.empty())
    all["hosts_join_at"] = join_at.front() + (join_at.size() > 1 ? fmt::format(" and at {} of other ranks", counted(join_at.size() - 1, "address", "addresses")) : "");
  return all;
}

/// The losses that the launcher has reported to the ranks; every rank knows all of them.
std::string losses_of(const json& group, std::size_t width) {
  json lost = json::array();
  for (const json& rank : group.at("ranks")) {
    const json known = status_of(rank).is_object() ? list_in(status_of(rank).value("group", json()), "lost") : json::array();
    if (known.size() > lost.size()) lost = known;
  }
  constexpr std::size_t shown = 5;
  std::string text = lost.size() > shown ? fmt::format("{} were lost; `penstock deaths` lists them. The last:\n", counted(lost.size(), "process", "processes")) : "";
  for (std::size_t i = lost.size() - std::min(shown, lost.size()); i < lost.size(); ++i)
    text += wrapped(fmt::format("lost at {} UTC: {}", without_year(utc_for_people(lost[i].at("time"))), lost_process_in_words(lost[i])), width, 2) + "\n";
  return text;
}

}  // namespace

std::string lost_process_in_words(const json& lost) {
  const std::string process = lost.at("pid").is_number() ? fmt::format(" (pid {})", text_of(lost.at("pid"))) : "";
  return fmt::format("rank {}{}: {}", text_of(lost.at("rank")), process, text_of(lost.at("end")));
}

std::string group_for_people(const json& group, std::size_t width) {
  std::vector<std::vector<std::string>> rows;
  work_kind kind = work_kind::samples;
  std::optional<double> sum;
  for (const json& rank : group.at("ranks")) {
    rows.push_back(row_of(rank));
    const json& s = status_of(rank);
    if (!s.is_object()) continue;
    kind = kind_of(s);  // all ranks have the same kind
    if (const auto rate = rate_of(s)) sum = sum.value_or(0) + *rate;
  }
  const std::string per_second = fmt::format("{}/s", words_for(kind).items);
  const bool over = std::ranges::any_of(group.at("ranks"), [](const json& rank) { return has_ended(status_of(rank)); });
  return fmt::format("group {}: {}{}\n", group.at("group").get<std::string>(), counted(rows.size(), over ? "ended rank" : "live rank"),
                     sum ? fmt::format(", {} {}", rate_text(*sum), per_second) : "") +
         text_table({{"RANK", column_side::right},
                     {"STATE"},
                     {"PID", column_side::right},
                     {"EPOCH", column_side::right},
                     {"BATCHES", column_side::right},
                     {"DONE", column_side::right},
                     {in_capitals(per_second), column_side::right},
                     {"WORKERS", column_side::right},
                     {"WAITS FOR", column_side::left, true}},
                    rows, width) +
         losses_of(group, width) + hosts_for_people(hosts_of(group), width);
}

bool all_well(const json& group) {
  return std::ranges::all_of(group.at("ranks"), [](const json& rank) {
    const json& s = status_of(rank);
    return s.is_object() && s.value("state", "") == "ok" && !s.value("stalled", json()).is_object();
  });
}

}  // namespace penstock::cli
