#include "tools/penstock/group/group_verbs.hpp"

#include "runtime/base/counted.hpp"
#include "tools/penstock/control/session_end.hpp"
#include "tools/penstock/control/stop_cost.hpp"
#include "tools/penstock/control/written_files.hpp"
#include "tools/penstock/group/group_tables.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/death_tables.hpp"
#include "tools/penstock/watch/full_screen.hpp"
#include "tools/penstock/watch/host_tables.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;
using clock = std::chrono::steady_clock;

bool has_result(const rank_answer& answer) {
  return answer.result.has_value();
}

/// Whether the order changed nothing: a pause of a paused session, or a resume of one that is not paused.
bool left_it_as_it_was(const rank_answer& answer) {
  return answer.result && !answer.result->value("changed", true);
}

/// "paused 2 ranks of photos"; if no rank carried out the order, the reason.
std::string order_in_words(const live_group& group, const std::vector<rank_answer>& answers,
                           const std::string& told) {
  const auto reached = static_cast<std::uint64_t>(std::ranges::count_if(answers, has_result));
  if (reached > 0) return fmt::format("{} {} of {}", told, counted(reached, "rank"), group.name);
  const bool gone = std::ranges::all_of(
      answers, [](const rank_answer& answer) { return answer.refused == exit_no_session; });
  return fmt::format("no rank of {} {}", group.name, gone ? "is still live" : "has carried out the order");
}

/// Prints the answer of each rank that carried out the order.
void print_order(const live_group& group, const std::vector<rank_answer>& answers) {
  json all = head_of(group);
  for (const rank_answer& a : answers) {
    all["ranks"].push_back(row_of(a));
    if (a.result) all["ranks"].back()["result"] = *a.result;
  }
  print_json("penstock.group-order/1", all);
}

}  // namespace

int order_group(const session_choice& choice, const live_group& group, const json& question,
                const std::string& told, const std::string& told_unchanged) {
  const std::vector<rank_answer> answers = ask_ranks(group, question, answer_deadline);
  const int code = tell_silent(choice, answers);
  if (choice.as_json) {
    print_order(group, answers);
  } else {
    const bool unchanged = !answers.empty() && std::ranges::all_of(answers, left_it_as_it_was);
    say(unchanged && !told_unchanged.empty() ? told_unchanged : order_in_words(group, answers, told));
  }
  return code;
}

int stop_group(const session_choice& choice, const live_group& group, bool now, bool wait,
               std::optional<std::chrono::milliseconds> longest) {
  const json question = request_to_stop(now);
  if (!wait) return order_group(choice, group, question, "told to stop:");
  std::vector<session_end> ends;
  for (const live_rank& r : group.ranks) ends.emplace_back(r.session.socket);
  std::vector<written_files> files(ends.size());
  const auto until = clock::now() + longest.value_or(longest_wait);
  std::vector<rank_answer> answers = ask_ranks(group, question, std::min(longest.value_or(answer_deadline), answer_deadline));
  const int code = tell_silent(choice, answers);
  if (!choice.as_json) say(order_in_words(group, answers, "stopping"));
  if (code != exit_ok) {
    if (choice.as_json) print_order(group, answers);
    return code;
  }
  for (std::size_t i = 0; i < ends.size(); ++i) {
    ends[i].says(answers[i].result.value_or(json::object()));
    files[i].are(answers[i].result.value_or(json::object()));
    if (ends[i].wait_and_tell(until, choice.as_json, fmt::format("rank {}: ", group.ranks[i].rank))) continue;
    return refuse_with(
        exit_timed_out,
        {errc::timed_out,
         fmt::format("rank {} has not stopped in time: {}", group.ranks[i].rank, ends[i].what_is_left()), 0},
        choice.as_json);
  }
  std::vector<std::string> lines;
  const auto add = [&lines](const std::string& text) {  // all ranks name the launcher's files
    for (std::string& line : lines_in(text)) {
      if (std::ranges::find(lines, line) == lines.end()) lines.push_back(std::move(line));
    }
  };
  std::string shared;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const stop_cost cost = read_stop_cost(ends[i].record(), answers[i].result.value_or(json::object()).value("ends", "session"));
    answers[i].result = json{{"stopped", true}};
    answers[i].result->update(files[i].as_json());
    answers[i].result.value()["positions"] = files[i].positions();
    answers[i].result->update(cost.as_json());
    if (const std::string killed = cost.killed_for_people(); !killed.empty()) add(fmt::format("rank {}: {}", group.ranks[i].rank, killed));
    shared += cost.position_for_people() + files[i].for_people() + cost.resume_for_people();
  }
  add(shared);
  if (choice.as_json) {
    print_order(group, answers);
  } else {
    say("stopped");
    for (const std::string& line : lines) say(line);
  }
  return exit_ok;
}

json status_of_group(const live_group& group) {
  json all{{"schema", "penstock.group-status/1"}};
  all.update(head_of(group));
  for (const rank_answer& a : ask_ranks(group, {{"verb", "status"}}, look_deadline)) {
    all["ranks"].push_back(row_of(a));
    all["ranks"].back()["status"] = a.result.value_or(json());
  }
  return all;
}

int show_group(const session_choice& choice, const live_group& group, bool check) {
  const json all = status_of_group(group);
  if (choice.as_json) {
    print_json(all);
  } else {
    print_raw(group_for_people(all, terminal_width(STDOUT_FILENO)));
    // The name of an ended session may belong to a later group; its ID does not.
    const named_session& first = group.ranks.front().session;
    say("next: penstock status --session " + (choice.last ? first.socket.stem().string() : first.name));
  }
  return check && !all_well(all) ? exit_not_met : exit_ok;
}

namespace {

/// The lost ranks that the launcher has reported to the lowest live rank, or else those that rank 0 has seen. A new
/// process of rank 0 has not seen earlier losses and begins another generation of the group.
struct lost_ranks {
  bool known = false;           // the launcher has reported losses, or rank 0 has answered
  json seen = json::array();    // {"time", "text"}; from a launcher also "rank", "pid", "end"
  std::uint64_t of_rank_0 = 0;  // how many times rank 0 itself was lost
};

lost_ranks losses_in(const live_group& group) {
  lost_ranks lost;
  const live_rank& first = group.ranks.front();
  const auto status = ask(first.session.socket, {{"verb", "status"}}, answer_deadline);
  if (!status || !status->value("ok", false)) return lost;
  const json facts = status->at("result").value("group", json());
  for (json& one : list_in(facts, "lost")) lost.seen.push_back({{"time", one.at("time")}, {"text", lost_process_in_words(one)}, {"rank", one.at("rank")}, {"pid", one.at("pid")}, {"end", one.at("end")}});
  lost.known = !lost.seen.empty();
  if (lost.known || first.rank != 0) return lost;
  const std::uint64_t generation = facts.is_object() ? facts.value("generation", std::uint64_t{0}) : 0;
  lost.of_rank_0 = generation > 0 ? generation - 1 : 0;
  for (std::uint64_t after = 0;;) {
    const auto page = ask(first.session.socket, {{"verb", "events"}, {"after", after}}, answer_deadline);
    if (!page || !page->value("ok", false)) return lost;
    const json& events = page->at("result").at("events");
    for (const json& e : events) {
      after = e.at("number").get<std::uint64_t>();
      if (e.at("kind") == "rank_lost") lost.seen.push_back({{"time", e.at("time")}, {"text", e.at("text")}});
    }
    if (!events.empty()) continue;
    lost.known = true;
    return lost;
  }
}

std::string text_of(const lost_ranks& lost) {
  if (!lost.known) return "rank 0 does not answer, so it is unknown which ranks were lost\n";
  std::string text;
  if (lost.of_rank_0 > 0)
    text += fmt::format("rank 0 was lost {}; ranks that were lost before that are not listed\n",
                        counted(lost.of_rank_0, "time"));
  for (const json& one : lost.seen)
    text +=
        fmt::format("lost at {} UTC: {}\n", without_year(utc_for_people(one.at("time"))), one.at("text").get<std::string>());
  return text;
}

}  // namespace

int deaths_of_group(const session_choice& choice, const live_group& group) {
  const std::vector<rank_answer> answers = ask_ranks(group, {{"verb", "deaths"}}, answer_deadline);
  const lost_ranks lost = losses_in(group);
  json all{{"schema", "penstock.group-deaths/1"}};
  all.update(head_of(group));
  all["lost_ranks"] = lost.known ? lost.seen : json();
  all["rank_0_lost"] = lost.known ? json(lost.of_rank_0) : json();
  std::string text = text_of(lost);
  for (const rank_answer& a : answers) {
    all["ranks"].push_back(row_of(a));
    if (!a.result) continue;
    all["ranks"].back().update(*a.result);
    const json deaths = all_deaths(*a.result);
    if (deaths.empty()) continue;
    text += fmt::format("rank {} ({}):\n", a.rank, a.session) +
            deaths_for_people(deaths, kind_of_answer(*a.result), terminal_width(STDOUT_FILENO));
    if (const std::string cost = cost_of_deaths(a.result->value("cost", json()), kind_of_answer(*a.result)); !cost.empty())
      text += wrapped(cost, terminal_width(STDOUT_FILENO), 2) + "\n";
    if (const std::string losses = losses_in_words(a.result->value("cost", json())); !losses.empty())
      text += wrapped(losses, terminal_width(STDOUT_FILENO), 2) + "\n";
  }
  if (choice.as_json) {
    print_json(all);
  } else if (text.empty()) {
    say(fmt::format("no rank of {} was lost, and no worker or GPU owner has died", group.name));
  } else {
    print_raw(text);
  }
  return tell_silent(choice, answers);
}

// ---- top --------------------------------------------------------------------------------------------------

namespace {

int watch_group(const live_group& group, std::chrono::milliseconds every) {
  auto screen = full_screen::take();
  if (!screen) return refuse_with(exit_failed, screen.error(), false);
  for (std::optional<live_group> living = group; living; living = again(group)) {
    screen->show(lines_in(group_for_people(status_of_group(*living), screen->size().columns)));
    const full_screen::input got = screen->wait(every);
    if (got.key == 'q' || got.key == 'Q' || got.closed) return exit_ok;
    if (got.signal != 0 && got.signal != SIGWINCH) return 128 + got.signal;
  }
  return exit_ok;
}

}  // namespace

int top_of_group(const session_choice& choice, const live_group& group, std::chrono::milliseconds every,
                 bool once) {
  if (choice.as_json) {
    for (std::optional<live_group> living = group; living; living = again(group)) {
      print_json(status_of_group(*living));
      if (once) break;
      std::this_thread::sleep_for(every);
    }
    return exit_ok;
  }
  if (!once && is_terminal(STDOUT_FILENO) && is_terminal(STDIN_FILENO)) return watch_group(group, every);
  print_raw(group_for_people(status_of_group(group), terminal_width(STDOUT_FILENO)));
  return exit_ok;
}

}  // namespace penstock::cli
