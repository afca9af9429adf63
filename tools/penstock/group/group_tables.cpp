#include "tools/penstock/group/group_tables.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/text_table.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

const json& status_of(const json& rank) {
  static const json none;
  const auto at = rank.find("status");
  return at != rank.end() && at->is_object() ? *at : none;
}

std::uint64_t number(const json& status, const char* field) {
  const auto at = status.find(field);
  return at != status.end() && at->is_number_unsigned() ? at->get<std::uint64_t>() : 0;
}

/// Progress through the whole stream: a restarted rank only has the rest of it to deliver.
std::string progress_of(const json& status) {
  const std::uint64_t before = number(status, "samples_before");
  const std::uint64_t expected = number(status, "samples_expected");
  if (expected == 0) return "-";
  const double part =
      static_cast<double>(before + number(status, "samples_done")) / static_cast<double>(before + expected);
  return fmt::format("{:.0f} %", std::floor(std::min(part, 1.0) * 100));
}

std::string rate_of(const json& rank, const json& before, double seconds) {
  if (!before.is_object() || seconds <= 0) return "-";
  for (const json& earlier : before.at("ranks")) {
    if (earlier.at("rank") != rank.at("rank")) continue;
    const std::uint64_t then = number(status_of(earlier), "samples_delivered");
    const std::uint64_t now = number(status_of(rank), "samples_delivered");
    if (now < then || number(status_of(earlier), "pid") != number(status_of(rank), "pid")) return "-";
    return fmt::format("{:.0f}/s", static_cast<double>(now - then) / seconds);
  }
  return "-";
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

std::vector<std::string> row_of(const json& rank, const json& before, double seconds) {
  const std::string number_of_rank = rank.at("rank").dump();
  const json& s = status_of(rank);
  if (!s.is_object()) return {number_of_rank, "no answer", "-", "-", "-", "-", "-", "-", ""};
  return {number_of_rank,
          s.value("state", "?"),
          std::to_string(number(s, "pid")),
          std::to_string(number(s, "epoch")),
          std::to_string(number(s, "batches_delivered")),
          progress_of(s),
          rate_of(rank, before, seconds),
          workers_of(s),
          remark_of(s)};
}

}  // namespace

std::string group_for_people(const json& group, const json& before, double seconds, std::size_t width) {
  std::vector<std::vector<std::string>> rows;
  for (const json& rank : group.at("ranks")) rows.push_back(row_of(rank, before, seconds));
  return fmt::format("group {}: {}\n", group.at("group").get<std::string>(),
                     counted(rows.size(), "live rank")) +
         text_table({{"RANK", column_side::right},
                     {"STATE"},
                     {"PID", column_side::right},
                     {"EPOCH", column_side::right},
                     {"BATCHES", column_side::right},
                     {"DONE", column_side::right},
                     {"SAMPLES", column_side::right},
                     {"WORKERS", column_side::right},
                     {"WAITS FOR", column_side::left, true}},
                    rows, width);
}

bool all_well(const json& group) {
  return std::ranges::all_of(group.at("ranks"), [](const json& rank) {
    const json& s = status_of(rank);
    return s.is_object() && s.value("state", "") == "ok" && !s.value("stalled", json()).is_object();
  });
}

}  // namespace penstock::cli
