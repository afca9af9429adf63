#include "tools/penstock/launch/session_ranks.hpp"

#include <fmt/core.h>

#include <charconv>

namespace penstock::cli {
namespace {

using nlohmann::ordered_json;

std::string with_rank(const std::string& text, std::uint32_t rank) {
  return fmt::format("{}-rank{}", text, rank);
}

/// HOST:PORT with a separate port for the rank. 0 stays 0: the kernel chooses.
std::string address_of(const std::string& listen, std::uint32_t rank) {
  const std::size_t colon = listen.rfind(':');
  if (colon == std::string::npos) return listen;
  std::uint32_t port = 0;
  const char* const end = listen.data() + listen.size();
  if (std::from_chars(listen.data() + colon + 1, end, port).ptr != end || port == 0) return listen;
  return fmt::format("{}:{}", listen.substr(0, colon), port + rank);
}

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
  add("--set", "name=" + with_rank(work.name, rank));
  if (!work.metrics_listen.empty()) add("--set", "metrics.listen=" + address_of(work.metrics_listen, rank));
  add("--device", place.gpu ? fmt::format("cuda:{}", rank) : "host");
  if (!work.sink.empty())
    add("--sink", work.sink.starts_with("journal:") ? with_rank(work.sink, rank) : work.sink);
  if (!work.out.empty()) add("--out", fmt::format("{}/rank{}", work.out, rank));
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
  // Without a pid nobody was there: the session's own error says who has arrived.
  const pid_t pid = first->value("pid", -1);
  if (pid <= 0) return why;
  return {first->value("cause", ""), first->value("rank", 0U), pid};
}

}  // namespace penstock::cli
