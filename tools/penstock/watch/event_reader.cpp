#include "tools/penstock/watch/event_reader.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/control/session_record.hpp"
#include "tools/penstock/control/session_end.hpp"
#include "tools/penstock/past/choose_past.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

/// Prints the last events of a session that has closed its socket: they are in its record.
void tell_rest(const session_end& end, const std::filesystem::path& socket, std::uint64_t after,
               const std::function<void(const json&)>& each) {
  if (control::is_record(socket)) return;  // all events came from the record
  const auto record = record_of(socket, end.pid());
  if (!record) return;
  const auto rest = ask(*record, {{"verb", "events"}, {"after", after}}, answer_deadline);
  if (!rest || !rest->value("ok", false)) return;
  for (const json& e : rest->at("result").at("events")) each(e);
}

}  // namespace

int read_events(const session_choice& choice, const std::filesystem::path& socket, bool follow,
                const std::function<void(const json&)>& each) {
  const session_end end(socket);
  std::uint64_t after = 0;
  while (true) {
    const bool waiting = follow && after > 0;
    const json question{{"verb", "events"}, {"after", after}, {"follow", waiting}};
    const result<json> got = waiting ? ask(socket, question, std::nullopt) : result<json>(json());
    if (!got) {
      tell_rest(end, socket, after, each);
      return exit_ok;
    }
    const session_answer told = waiting ? understand(choice, *got) : request(choice, socket, question, answer_deadline);
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
      if (waiting) tell_rest(end, socket, after, each);
      return exit_ok;
    }
    if (all.empty()) after = std::max<std::uint64_t>(after, 1);
  }
}

}  // namespace penstock::cli
