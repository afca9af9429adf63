#include "tools/penstock/session_tables.hpp"

#include "runtime/base/units.hpp"
#include "tools/penstock/text_table.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

std::string text_of(const json& value) {
  return value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
}

std::string last_death_of(const json& worker) {
  const json& d = worker.at("last_death");
  if (d.is_null()) return "-";
  return d.at("sample").is_null() ? ending_of(d) : ending_of(d) + " on " + text_of(d.at("sample"));
}

std::string state_of(const json& worker) {
  const json& again = worker.at("next_restart_seconds");
  if (!again.is_number()) return text_of(worker.at("state"));
  return fmt::format("{} {:.1f} s", text_of(worker.at("state")), again.get<double>());
}

}  // namespace

std::string ending_of(const json& d) {
  const std::string cause = text_of(d.at("cause"));
  if (cause == "exit") return "exit " + text_of(d.at("code"));
  return cause == "signal" ? text_of(d.at("signal")) : cause;
}

std::string status_for_people(const json& s, const target& meant, std::size_t width) {
  std::string out;
  const auto line = [&](const std::string& text) { out += cut_to(text, width) + "\n"; };
  if (meant.means(target_kind::scheduler)) {
    line(fmt::format("{}  {}  pid {}  epoch {}  {} batches, {} samples delivered", text_of(s.at("session")),
                     text_of(s.at("state")), text_of(s.at("pid")), text_of(s.at("epoch")),
                     text_of(s.at("batches_delivered")), text_of(s.at("samples_delivered"))));
  }
  if (meant.means(target_kind::gpu)) {
    const json& gpu = s.at("gpu");
    line(fmt::format("gpu  {}  {}  {}  pid {}", text_of(gpu.at("state")), text_of(gpu.at("name")),
                     text_of(gpu.at("placement")), text_of(gpu.at("pid"))));
  }
  const json& workers = s.at("workers");
  if (!workers.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const json& w : workers) {
      rows.push_back({"worker/" + text_of(w.at("id")), state_of(w), text_of(w.at("pid")),
                      text_of(w.at("restarts")), text_of(w.at("samples")),
                      bytes_for_people(w.at("rss_bytes").get<std::uint64_t>()), last_death_of(w)});
    }
    out += text_table({{"worker"},
                       {"state", column_side::left, true},
                       {"pid", column_side::right},
                       {"restarts", column_side::right},
                       {"samples", column_side::right},
                       {"memory", column_side::right},
                       {"last death", column_side::left, true}},
                      rows, width);
  }
  if (meant.kind == target_kind::all && (s.at("failed") != 0 || s.at("quarantined") != 0))
    line(fmt::format("{} samples failed, {} quarantined", text_of(s.at("failed")),
                     text_of(s.at("quarantined"))));
  return out;
}

std::string hint_after_status(const json& s) {
  for (const json& w : s.at("workers")) {
    if (w.at("state") == "failed") return "penstock restart worker/" + text_of(w.at("id"));
  }
  for (const json& w : s.at("workers")) {
    if (!w.at("last_death").is_null()) return "penstock deaths";
  }
  return s.at("state") == "paused" ? "penstock resume" : "";
}

std::string deaths_for_people(const json& deaths, std::size_t width) {
  std::vector<std::vector<std::string>> rows;
  for (const json& d : deaths) {
    rows.push_back({"worker/" + text_of(d.at("worker")), text_of(d.at("pid")), ending_of(d),
                    duration_for_people(
                        nanoseconds(static_cast<std::int64_t>(d.at("lived_seconds").get<double>() * 1e9))),
                    d.at("sample").is_null() ? text_of(d.at("phase")) : text_of(d.at("sample")),
                    d.at("attempt") == 0 ? "-" : text_of(d.at("attempt")), text_of(d.at("path"))});
  }
  return text_table({{"worker"},
                     {"pid", column_side::right},
                     {"ended by"},
                     {"lived", column_side::right},
                     {"sample", column_side::right},
                     {"attempt", column_side::right},
                     {"path", column_side::left, true}},
                    rows, width);
}

}  // namespace penstock::cli
