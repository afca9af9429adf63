#include "tools/penstock/watch/event_reader.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/control/session_record.hpp"
#include "tools/penstock/past/choose_past.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

/// Empty for an ended session.
std::optional<json> status_at(const std::filesystem::path& socket) {
  if (control::is_record(socket)) return std::nullopt;
  const auto answer = ask(socket, {{"verb", "status"}}, answer_deadline);
  return answer && answer->value("ok", false) ? std::optional(answer->at("result")) : std::nullopt;
}

/// The last events of a session that has closed its socket are in its record.
void tell_rest(const json& status, std::uint64_t after, const std::function<void(const json&)>& each) {
  const auto record = record_of(status);
  if (!record) return;
  const auto rest = ask(*record, {{"verb", "events"}, {"after", after}}, answer_deadline);
  if (!rest || !rest->value("ok", false)) return;
  for (const json& e : rest->at("result").at("events")) each(e);
}

}  // namespace

int read_events(const session_choice& choice, const std::filesystem::path& socket, bool follow,
                const std::function<void(const json&)>& each) {
  const std::optional<json> status = follow ? status_at(socket) : std::nullopt;
  std::uint64_t after = 0;
  while (true) {
    const bool waiting = follow && after > 0;
    const auto deadline = waiting ? std::nullopt : std::optional(answer_deadline);
    const auto got = ask(socket, {{"verb", "events"}, {"after", after}, {"follow", waiting}}, deadline);
    if (!got && waiting) {
      if (status) tell_rest(*status, after, each);
      return exit_ok;
    }
    if (!got) return refuse_unreached(choice, got.error());
    const session_answer told = understand(choice, *got);
    if (told.refused != exit_ok) return told.refused;
    const json& page = told.result;
    if (const auto lost = page.value("lost", std::uint64_t{0}); lost > 0 && after > 0)
      say(counted(lost, "event") + " came too fast and were lost");
    const json& all = page.at("events");
    for (const json& e : all) {
      each(e);
      after = e.at("number").get<std::uint64_t>();
    }
    if (all.empty() && (!follow || waiting)) {
      if (status) tell_rest(*status, after, each);
      return exit_ok;
    }
    if (all.empty()) after = std::max<std::uint64_t>(after, 1);
  }
}

}  // namespace penstock::cli
