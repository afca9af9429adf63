#include "tools/penstock/launch/session_ranks.hpp"

#include "runtime/group/rank_files.hpp"

#include <fmt/core.h>

namespace penstock::cli {
namespace {

using nlohmann::ordered_json;

}  // namespace

std::string report_path(const session_work& work, std::uint32_t rank) {
  return fmt::format("{}/rank{}.json", work.report_folder, rank);
}

std::vector<std::string> rank_arguments(const session_work& work, const rank_place& place,
                                        std::uint32_t rank) {
  std::vector<std::string> words{"run", work.file};
  words.insert(words.end(), work.arguments.begin(), work.arguments.end());
  const auto add = [&words](const char* option, std::string value) {
    words.emplace_back(option);
    words.push_back(std::move(value));
  };
  add("--set", "sampler.rank=auto");
  add("--set", "name=" + group::with_rank(work.name, rank));
  if (!work.metrics_listen.empty())
    add("--set", "metrics.listen=" + group::address_of_rank(work.metrics_listen, rank));
  add("--device", place.gpu ? fmt::format("cuda:{}", rank) : "host");
  if (!work.sink.empty()) add("--sink", group::sink_of_rank(work.sink, rank));
  if (!work.out.empty()) add("--out", group::folder_of_rank(work.out, rank));
  add("--report", report_path(work, rank));
  return words;
}

ordered_json rank_report(const std::string& own, std::uint32_t rank, std::uint32_t world_size,
                         ordered_json process) {
  ordered_json report = ordered_json::parse(own, nullptr, false);
  if (!report.is_object()) {
    report = {{"schema", "penstock.run/1"},
              {"outcome", "failed"},
              {"error", "it wrote no report: " + process.value("end", "")},
              {"error_kind", "rank_failed"},
              {"epochs", ordered_json::array()}};
  }
  report["rank"] = rank;
  report["world_size"] = world_size;
  report["process"] = std::move(process);
  return report;
}

reported_cause cause_in(const std::string& own_report) {
  const ordered_json report = ordered_json::parse(own_report, nullptr, false);
  reported_cause why;
  if (!report.is_object()) return why;
  if (const auto error = report.find("error"); error != report.end() && error->is_string())
    why.text = error->get<std::string>();
  const auto group = report.find("group");
  if (group == report.end() || !group->is_object()) return why;
  const auto first = group->find("first_cause");
  if (first == group->end() || !first->is_object()) return why;
  // Without a pid that rank never joined; the session's own error says which ranks have arrived.
  const pid_t pid = first->value("pid", -1);
  if (pid <= 0) return why;
  return {first->value("cause", ""), first->value("rank", 0U), pid};
}

}  // namespace penstock::cli
