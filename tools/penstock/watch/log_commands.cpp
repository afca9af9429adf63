// logs: what a session's processes wrote.
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/control/control_client.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/session_verb.hpp"
#include "tools/penstock/targets.hpp"

#include <limits>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

struct log_options {
  session_choice choice;
  std::string target = "all";
  bool follow = false;
  bool previous = false;
  std::optional<std::uint32_t> tail;
};

void tell(const json& line, bool as_json, bool with_source) {
  if (as_json) return print_json(line);
  if (line.contains("dropped"))
    print(fmt::format("({} of {} dropped)", counted(line.at("dropped").get<std::uint64_t>(), "line", "lines"),
                      line.at("source").get<std::string>()));
  const auto text = line.at("text").get<std::string>();
  print(with_source ? fmt::format("{}  {}", line.at("source").get<std::string>(), text) : text);
}

/// Follows the logs until the session ends.
int follow(const log_options& o, const chosen_socket& socket, json question, json seen, bool with_source) {
  question["follow"] = true;
  question.erase("tail");
  while (true) {
    question["after"] = seen;
    const auto answer = control::ask(socket.path, question, std::nullopt);
    if (!answer || !answer->value("ok", false)) return exit_ok;  // the session is over
    const json& result = answer->at("result");
    for (const json& line : result.at("lines")) tell(line, o.choice.as_json, with_source);
    if (result.at("seen") == seen && result.at("lines").empty()) return exit_ok;
    seen = result.at("seen");
  }
}

int logs(const log_options& o) {
  const auto meant = parse_target(o.target);
  if (!meant || meant->kind == target_kind::scheduler) {
    return no_such_target(
        o.choice, fmt::format("'{}' has no log: use worker/N, workers, gpu or all", printable(o.target)));
  }
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  json question{{"verb", "logs"}, {"target", o.target}, {"previous", o.previous}};
  if (o.tail) question["tail"] = *o.tail;
  const session_answer first = request(o.choice, socket.path, question);
  if (first.refused != exit_ok) return first.refused;
  const bool with_source = meant->kind == target_kind::all || meant->kind == target_kind::workers;
  for (const json& line : first.result.at("lines")) tell(line, o.choice.as_json, with_source);
  if (!o.follow && first.result.at("lines").empty() && !o.choice.as_json)
    say(o.previous ? "no output from an earlier process of this target" : "no output yet");
  if (!o.follow) return exit_ok;
  return follow(o, socket, std::move(question), first.result.at("seen"), with_source);
}

}  // namespace

void add_log_commands(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<log_options>(
      verbs,
      {"logs",
       verb_group::operate,
       "show the output of a session's processes",
       "The last 64 KiB of stdout and stderr of each process, and of its predecessor in the same place. With "
       "--json, one object per line.",
       {{"penstock logs worker/3 --previous", "the last output of the process that died there"},
        {"penstock logs workers -f", "all workers, as they write"},
        {"penstock logs all --tail 20 --json", "for scripts"}}},
      logs);
  verb.add_option("TARGET", o->target, "worker/N, workers, gpu or all");
  verb.add_flag("-f,--follow", o->follow, "continue until the session ends");
  verb.add_flag("--previous", o->previous, "the previous process's output");
  takes_whole_number(verb.add_option("--tail", o->tail, "only the last N lines"),
                     {0, std::numeric_limits<std::uint32_t>::max()});
}

}  // namespace penstock::cli
