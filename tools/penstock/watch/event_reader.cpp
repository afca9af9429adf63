#include "tools/penstock/watch/event_reader.hpp"

#include "runtime/base/counted.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

namespace penstock::cli {

using json = nlohmann::ordered_json;

int read_events(const session_choice& choice, const std::filesystem::path& socket, bool follow,
                const std::function<void(const json&)>& each) {
  std::uint64_t after = 0;
  while (true) {
    const bool waiting = follow && after > 0;
    const auto deadline = waiting ? std::nullopt : std::optional(answer_deadline);
    const auto got = ask(socket, {{"verb", "events"}, {"after", after}, {"follow", waiting}}, deadline);
    // A session's events end with the session.
    if (!got && waiting) return exit_ok;
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
    if (all.empty() && (!follow || waiting)) return exit_ok;
    if (all.empty()) after = std::max<std::uint64_t>(after, 1);
  }
}

}  // namespace penstock::cli
