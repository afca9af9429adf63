#include "actors/host/log_verb.hpp"

#include "runtime/base/exit_codes.hpp"
#include "runtime/base/text.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace penstock::host {
namespace {

using json = nlohmann::ordered_json;

json as_json(const process::log_line& line) {
  json j{{"source", line.source},
         {"incarnation", line.incarnation},
         {"number", line.number},
         {"time", static_cast<double>(line.unix_ms) / 1000},
         {"text", printable(line.text)}};
  if (line.dropped > 0) j["dropped"] = line.dropped;
  return j;
}

std::map<std::string, std::uint64_t> cursor_of(const json& after) {
  std::map<std::string, std::uint64_t> seen;
  for (const auto& [source, number] : after.items()) {
    if (number.is_number_unsigned()) seen[source] = number.get<std::uint64_t>();
  }
  return seen;
}

}  // namespace

control::answer answer_logs(const json& request, bool last_call, const process::log_store& book) {
  const json target = request.value("target", json("all"));
  process::log_query query;
  if (!target.is_string()) return control::refusal(exit_codes::refused, "usage", "'target' must be a name");
  query.source = target.get<std::string>();
  if (query.source == "all" || query.source == "workers") query.source.clear();
  if (!query.source.empty() && !book.knows(query.source)) {
    return control::refusal(
        exit_codes::no_target, "no_target",
        fmt::format("'{}' has no log", shortened(printable(query.source), 60)));
  }
  query.previous = request.value("previous", json()) == true;
  const json tail = request.value("tail", json());
  if (tail.is_number_unsigned()) query.tail = tail.get<std::size_t>();
  const json after = request.value("after", json());
  if (after.is_object()) query.after = cursor_of(after);
  process::log_answer found = book.read(query);
  if (target == "workers") {
    std::erase_if(found.lines, [](const auto& line) { return !line.source.starts_with("worker/"); });
  }
  if (found.lines.empty() && query.after && request.value("follow", json()) == true && !last_call)
    return std::nullopt;
  json lines = json::array();
  for (const process::log_line& line : found.lines) lines.push_back(as_json(line));
  return control::good_answer({{"lines", std::move(lines)}, {"seen", found.seen}});
}

}  // namespace penstock::host
