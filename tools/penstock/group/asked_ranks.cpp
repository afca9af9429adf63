#include "tools/penstock/group/asked_ranks.hpp"

#include "runtime/control/socket_place.hpp"
#include "tools/penstock/past/choose_past.hpp"

#include <future>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

std::vector<named_session> live_sessions() {
  std::vector<named_session> live;
  for (auto& s : control::find_sessions()) {
    if (s.alive) live.push_back({s.name, s.path, std::move(s.rank)});
  }
  return live;
}

}  // namespace

// ---- which group ------------------------------------------------------------------------------------------

meant_group group_meant(const session_choice& choice) {
  if (!choice.session.empty() || !choice.socket.empty()) return {};
  if (choice.last && choice.group.empty()) return {};
  if (choice.last) {
    if (auto past = past_group(choice.group)) return {std::move(past), exit_ok};
    return {std::nullopt, no_such_past_group(choice)};
  }
  const std::vector<named_session> live = live_sessions();
  if (choice.group.empty()) return {only_group(live), exit_ok};
  const std::vector<live_group> groups = groups_among(live);
  std::vector<live_group> meant = groups_named(groups, choice.group);
  if (meant.empty()) return {std::nullopt, no_such_group(choice, groups)};
  if (meant.size() > 1) return {std::nullopt, refuse_ambiguous(choice, meant)};
  return {std::move(meant.front()), exit_ok};
}

json head_of(const live_group& group) {
  return {
      {"group", group.name}, {"job", group.job.empty() ? json() : json(group.job)}, {"ranks", json::array()}};
}

bool group_is_there(const std::string& name) {
  return !groups_named(groups_among(live_sessions()), name).empty();
}

std::optional<live_group> again(const live_group& group) {
  for (live_group& one : groups_among(live_sessions())) {
    if (one.name == group.name && one.job == group.job) return std::move(one);
  }
  return std::nullopt;
}

// ---- all ranks at once ------------------------------------------------------------------------------------

std::vector<rank_answer> ask_ranks(const live_group& group, const json& question,
                                   std::chrono::milliseconds deadline) {
  std::vector<std::future<rank_answer>> asked;
  for (const live_rank& r : group.ranks) {
    asked.push_back(std::async(std::launch::async, [&r, &question, deadline]() -> rank_answer {
      auto answer = ask(r.session.socket, question, deadline);
      if (!answer) {
        const int code = answer.error().code == errc::timed_out ? exit_timed_out : exit_no_session;
        const std::string suspended = suspension_of(r.session.socket);
        return {r.rank, r.session.name, std::nullopt, suspended.empty() ? answer.error().message : suspended, code};
      }
      if (answer->value("ok", false)) return {r.rank, r.session.name, std::move(answer->at("result")), {}};
      const json why = answer->value("error", json::object());
      return {r.rank, r.session.name, std::nullopt, why.value("message", "the session refused"),
              answer->value("exit", static_cast<int>(exit_refused))};
    }));
  }
  std::vector<rank_answer> answers;
  for (auto& one : asked) answers.push_back(one.get());
  return answers;
}

void rank_outcomes::add(int code) noexcept {
  code_ = code_.value_or(code) == code ? code : exit_refused;
}

json row_of(const rank_answer& answer) {
  json row{{"rank", answer.rank}, {"session", answer.session}};
  if (!answer.result) row["error"] = answer.why_not;
  return row;
}

int tell_silent(const session_choice& choice, const std::vector<rank_answer>& answers) {
  rank_outcomes outcomes;
  for (const rank_answer& a : answers) {
    outcomes.add(a.refused);
    if (!a.result && !choice.as_json) say(fmt::format("rank {} ({}): {}", a.rank, a.session, a.why_not));
  }
  return outcomes.code();
}

}  // namespace penstock::cli
