#include "tools/penstock/past/past_tables.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/one_line.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/control/stop_cost.hpp"
#include "tools/penstock/control/written_files.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/event_times.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>
#include <vector>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

/// Whether the session's end is unknown; `ended` is then the time of its last entry.
bool has_died(const json& summary) {
  return summary.at("outcome") == "died";
}

std::string time_between(const json& started, const json& ended) {
  const auto from = started.is_string() ? time_of_utc(started.get<std::string>()) : std::nullopt;
  const auto to = ended.is_string() ? time_of_utc(ended.get<std::string>()) : std::nullopt;
  return from && to ? duration_for_people(std::max<nanoseconds>(*to - *from, nanoseconds(0))) : "-";
}

std::string why_ended(const json& ended) {
  if (const json& why = ended.at("failure"); why.is_string()) return one_line(why.get<std::string>());
  return has_died(ended) || ended.at("outcome") == "stopped" ? one_line(text_of(ended.at("reason"))) : "";
}

std::string progress_at_end(const json& s) {
  if (kind_of(s) == work_kind::batches) return progress_of_jobs(s);
  if (is_pool(s)) {
    const json& jobs = s.at("jobs");
    std::string text = counted(jobs.at("ok").get<std::uint64_t>(), "job") + " ok";
    for (const char* how : {"failed", "cancelled"}) {
      if (const auto count = jobs.value(how, std::uint64_t{0}); count > 0) text += fmt::format(", {} {}", counted(count, "job"), how);
    }
    return text;
  }
  if (!s.at("samples_expected").is_number() || s.at("samples_expected") == 0) return "";
  return fmt::format("{} of {}", text_of(s.at("samples_delivered")),
                     counted(s.at("samples_expected").get<std::uint64_t>(), "sample"));
}

/// Cut between words, to about this many bytes.
std::string shortened_at_word(const std::string& text, std::size_t limit) {
  const std::size_t last = text.size() <= limit ? 0 : text.rfind(' ', limit);
  return last == 0 || last == std::string::npos ? shortened(text, limit) : text.substr(0, last) + " ...";
}

}  // namespace

std::string end_in_words(const json& summary) {
  std::string text = fmt::format("{}{} {} ago", text_of(summary.at("outcome")), has_died(summary) ? ", last seen" : "",
                                 time_since(text_of(summary.at("ended"))));
  if (const json& why = summary.at("failure"); why.is_string())
    text += ": " + shortened_at_word(one_line(why.get<std::string>()), 160);
  return text;
}

std::string files_at_end(const json& ended) {
  const std::string resume = how_to_resume(ended);
  return files_for_people(ended) + (resume.empty() ? "" : resume + "\n");
}

std::string ended_for_people(const json& ended, std::size_t width) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::vector<std::string>> below;  // reasons at full length: they are never cut
  for (const json& s : ended) {
    rows.push_back({text_of(s.at("id")), text_of(s.at("outcome")), s.at("started").is_string() ? without_year(utc_for_people(s.at("started"))) : "-",
                    (has_died(s) ? "last seen " : "") + without_year(utc_for_people(s.at("ended"))), time_between(s.at("started"), s.at("ended")), deaths_in(s)});
    std::string line = progress_at_end(s);
    if (const std::string why = why_ended(s); !why.empty()) line += (line.empty() ? "" : "; ") + why;
    std::vector<std::string>& lines = below.emplace_back(lines_in(files_at_end(s)));
    if (!line.empty()) lines.insert(lines.begin(), std::move(line));
  }
  std::istringstream table(text_table({{"ENDED SESSION"}, {"OUTCOME"}, {.title = "STARTED (UTC)", .optional = true}, {"ENDED (UTC)"}, {"RAN FOR", column_side::right},
                                       {"DEATHS", column_side::right}},
                                      rows, width));
  std::string out;
  std::string line;
  std::getline(table, line);
  out += line + "\n";
  for (const std::vector<std::string>& lines : below) {
    std::getline(table, line);
    out += line + "\n";
    for (const std::string& more : lines) out += "    " + hanging(more, width, 4) + "\n";
  }
  return out;
}

}  // namespace penstock::cli
