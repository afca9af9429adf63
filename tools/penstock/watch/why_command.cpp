// why: what limits a session, and what to change.
#include "tools/penstock/commands.hpp"
#include "tools/penstock/control/slow_stop.hpp"
#include "tools/penstock/group/asked_ranks.hpp"
#include "tools/penstock/host_targets.hpp"
#include "tools/penstock/past/choose_past.hpp"
#include "tools/penstock/session_verb.hpp"
#include "tools/penstock/targets.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/why_text.hpp"

#include <fmt/core.h>
#include <unistd.h>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

struct why_options {
  session_choice choice;
  std::string target = "all";
};

/// Whether the session has the worker that the target names.
bool has_worker(const json& why, const target& meant) {
  if (meant.kind != target_kind::worker) return true;
  for (const json& id : why.at("workers").at("ids")) {
    if (id == meant.worker) return true;
  }
  return false;
}

int why_of_group(const why_options& o, const live_group& group, const target& meant) {
  json all{{"schema", "penstock.group-why/1"}};
  all.update(head_of(group));
  rank_outcomes outcomes;
  for (rank_answer& a : ask_ranks(group, {{"verb", "why"}}, answer_deadline)) {
    if (a.result && !has_worker(*a.result, meant)) {
      a.result.reset();
      a.refused = exit_no_target;
      a.why_not = "there is no " + o.target;
    }
    outcomes.add(a.result ? exit_ok : a.refused);
    if (a.result) limit_to(*a.result, meant);
    if (!o.choice.as_json) {
      print(fmt::format("rank {} ({}){}", a.rank, a.session, a.result ? ":" : ": " + a.why_not));
      if (a.result) print(why_for_people(*a.result, terminal_width(STDOUT_FILENO), " --session " + a.session));
    }
    json row{{"rank", a.rank}, {"session", a.session}};
    row[a.result ? "why" : "error"] = a.result ? std::move(*a.result) : json(a.why_not);
    all["ranks"].push_back(std::move(row));
  }
  if (o.choice.as_json) print_json(all);
  return outcomes.code();
}

int tell_why(why_options o) {
  if (const int no = name_worker(o.choice, o.target); no != exit_ok) return no;
  const auto meant = parse_target(o.target);
  if (!meant) return no_such_target(o.choice, not_a_target(o.target));
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  if (group.group) return why_of_group(o, *group.group, *meant);
  const chosen_socket socket = choose_to_show(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  session_answer answer = request(o.choice, socket.path, {{"verb", "why"}});
  if (answer.refused != exit_ok) return answer.refused;
  if (!has_worker(answer.result, *meant)) return no_such_worker(o.choice, o.target, answer.result.at("workers").at("ids"));
  limit_to(answer.result, *meant);
  answer.result["stopping"] = nullptr;
  if (answer.result.at("state") == "stopping") {
    const session_answer status = request(o.choice, socket.path, {{"verb", "status"}});
    if (status.refused != exit_ok) return status.refused;
    answer.result["stopping"] = stopping_for(status.result);
    answer.result["stopping_seconds"] = status.result.value("stopping_seconds", json());
  }
  if (o.choice.as_json) {
    print_json(answer.result);
  } else if (answer.result.at("stopping").is_array()) {
    const json since = answer.result.at("stopping_seconds");
    print(since.is_number() ? fmt::format("The session has been stopping for {:.0f} s.", since.get<double>()) : "The session is stopping.");
    print_raw(stopping_in_words(answer.result.at("stopping"), terminal_width(STDOUT_FILENO)));
  } else {
    const bool over = answer.result.at("state") == "ended";
    print_raw(why_for_people(answer.result, terminal_width(STDOUT_FILENO), over ? "" : choice_in_words(o.choice)));
    if (over && !o.choice.last) say(wrapped(end_in_words(answer.result), terminal_width(STDERR_FILENO), 2));
  }
  return exit_ok;
}

}  // namespace

void add_why_command(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<why_options>(
      verbs,
      {"why",
       verb_group::operate,
       "say what limits a session, and which key to change",
       "What the stream waited for during the last 10 s, as shares of the time: storage, decode, order, "
       "wire, "
       "convert, consumer, start. One sentence names the largest and what to change; when the consumer waits "
       "less than 15 % of the time, loading faster would gain nothing. A pool of jobs has storage, decode, "
       "order, consumer and start. The same shares are in `status --json` (limits) and in the metrics. For "
       "an ended session, it shows its last 10 s.",
       {{"penstock why", "the only live session"},
        {"penstock why worker/3", "with the time that worker 3 needs for a sample"},
        {"penstock why --json | jq -r .key", "the config key to change first"},
        {"penstock why --group photos", "all ranks of a group"},
        {"penstock why --last", "the session that ended last"}}},
      tell_why);
  add_group_choice(verb, o->choice);
  add_past_choice(verb, o->choice);
  verb.add_option("TARGET", o->target, "worker/N, workers, gpu, scheduler or all");
}

}  // namespace penstock::cli
