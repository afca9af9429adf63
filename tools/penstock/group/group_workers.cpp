// restart and drain for workers of all ranks of a group.
#include "tools/penstock/group/group_verbs.hpp"

#include <fmt/format.h>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

std::string names_of(const std::vector<std::uint32_t>& workers) {
  std::vector<std::string> names;
  for (const std::uint32_t worker : workers) names.push_back(fmt::format("worker/{}", worker));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The outcome of an order to several workers of a rank.
struct changed_workers {
  std::vector<std::uint32_t> changed;
  std::vector<std::uint32_t> not_asked;  // the workers after the refused one
  std::optional<std::uint32_t> refused;
  std::string why_not;  // why that one was refused; or why the rank's workers are unknown
  int code = exit_ok;   // exit code of the refusal
};

changed_workers change_workers(const live_group& group, const live_rank& rank, const std::string& verb, bool now,
                               const std::vector<std::uint32_t>& workers) {
  changed_workers all;
  const live_group alone{group.name, group.job, {rank}};
  for (const std::uint32_t worker : workers) {
    if (all.refused) {
      all.not_asked.push_back(worker);
      continue;
    }
    const rank_answer done = ask_ranks(alone, {{"verb", verb}, {"worker", worker}, {"now", now}}, answer_deadline).front();
    if (done.result) {
      all.changed.push_back(worker);
    } else {
      all.refused = worker;
      all.why_not = done.why_not;
      all.code = done.refused;
    }
  }
  return all;
}

/// "drain of worker/0 requested; refused for worker/1: it is being restarted; not requested for worker/2".
std::string in_words(const changed_workers& all, const std::string& verb) {
  std::vector<std::string> parts;
  if (!all.changed.empty()) parts.push_back(fmt::format("{} of {} requested", verb, names_of(all.changed)));
  if (all.refused && all.code != exit_no_target)
    parts.push_back(fmt::format("refused for worker/{}: {}", *all.refused, all.why_not));
  else if (!all.why_not.empty())
    parts.push_back(all.why_not);
  if (!all.not_asked.empty()) parts.push_back("not requested for " + names_of(all.not_asked));
  return parts.empty() ? fmt::format("there is no worker to {}", verb)
                       : fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

int change_workers_of_group(const session_choice& choice, const live_group& group, const std::string& verb, bool now,
                            const std::function<std::vector<std::uint32_t>(const json&)>& which) {
  const std::vector<rank_answer> answers = ask_ranks(group, {{"verb", "status"}}, answer_deadline);
  json rows = head_of(group);
  bool any = false;
  rank_outcomes outcomes;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const rank_answer& a = answers[i];
    changed_workers done;
    done.why_not = a.why_not;
    done.code = a.refused;
    if (a.result) done = change_workers(group, group.ranks[i], verb, now, which(*a.result));
    any = any || !done.changed.empty();
    outcomes.add(done.code);
    if (!done.changed.empty()) outcomes.add(exit_ok);
    json row{{"rank", a.rank}, {"session", a.session}, {verb, done.changed}};
    if (!done.why_not.empty())
      row["error"] = in_words({{}, done.not_asked, done.refused, done.why_not, done.code}, verb);
    rows["ranks"].push_back(std::move(row));
    if (!choice.as_json) say(fmt::format("rank {} ({}): {}", a.rank, a.session, in_words(done, verb)));
  }
  if (choice.as_json) print_json("penstock.group-order/1", rows);
  const int code = outcomes.code();
  return code == exit_ok && !any ? exit_no_target : code;
}

}  // namespace penstock::cli
