#include "tools/penstock/group/group_wait.hpp"

#include "runtime/base/counted.hpp"
#include "tools/penstock/control/session_end.hpp"
#include "tools/penstock/group/asked_ranks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <vector>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds no_limit = 24h * 365;

/// The group's live ranks that have not been asked yet.
live_group not_asked(const live_group& group, const std::set<std::filesystem::path>& asked) {
  live_group rest = again(group).value_or(live_group{});
  std::erase_if(rest.ranks, [&](const live_rank& r) { return asked.contains(r.session.socket); });
  return rest;
}

/// Waits for the processes that end with the session; after that, the report is written.
bool report_is_there(session_end& end, const json& answer, std::chrono::steady_clock::time_point until) {
  end.says(answer);
  return end.wait_until(until);
}

}  // namespace

int wait_for_group(const session_choice& choice, const live_group& group, const std::string& what,
                   std::optional<std::chrono::milliseconds> deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline.value_or(no_limit);
  std::set<std::filesystem::path> asked;
  json ranks = json::array();
  rank_outcomes outcomes;
  for (live_group next = group; !next.ranks.empty();) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    for (const live_rank& r : next.ranks) asked.insert(r.session.socket);
    std::vector<session_end> ends;
    for (const live_rank& r : next.ranks) ends.emplace_back(r.session.socket);
    const std::vector<rank_answer> answers =
        ask_ranks(next, {{"verb", "wait"}, {"for", what}}, std::max(left, 0ms));
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const rank_answer& a = answers[i];
      const bool has_ended = what == "ready" || !a.result || report_is_there(ends[i], *a.result, until);
      const bool died = what == "ended" && a.refused == exit_no_session;
      outcomes.add(died ? exit_ok : !a.result ? a.refused : has_ended ? exit_ok : exit_timed_out);
      if (!has_ended && !choice.as_json)
        say(fmt::format("rank {} ({}): {}", a.rank, a.session, ends[i].what_is_left()));
      json row{{"rank", a.rank}, {"session", a.session}};
      row[a.result || died ? "outcome" : "error"] =
          a.result ? a.result->value("outcome", json()) : json(died ? "died" : a.why_not);
      ranks.push_back(std::move(row));
      if (!a.result && !choice.as_json) say(fmt::format("rank {} ({}): {}", a.rank, a.session, a.why_not));
    }
    next = not_asked(group, asked);
  }
  // Ranks that appeared later were asked later, so sort by rank.
  std::stable_sort(ranks.begin(), ranks.end(), [](const json& one, const json& other) {
    return one.at("rank").get<std::uint32_t>() < other.at("rank").get<std::uint32_t>();
  });
  if (choice.as_json) {
    json all{{"schema", "penstock.wait/1"}, {"waited_for", what}};
    all.update(head_of(group));
    all["ranks"] = std::move(ranks);
    print_json(all);
  } else if (outcomes.code() == exit_ok) {
    say(fmt::format("{}: {} of {}", what, counted(ranks.size(), "rank"), group.name));
  }
  return outcomes.code();
}

}  // namespace penstock::cli
