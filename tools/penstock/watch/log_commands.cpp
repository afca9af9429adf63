// logs: the output of a session's processes.
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/control/session_record.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/group/asked_ranks.hpp"
#include "tools/penstock/host_targets.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/past/choose_past.hpp"
#include "tools/penstock/session_verb.hpp"
#include "tools/penstock/targets.hpp"
#include "tools/penstock/watch/folded_stacks.hpp"

#include <atomic>
#include <limits>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

/// How to print the lines of one session. Each line is one write, so that several sessions can be followed at
/// once.
struct log_style {
  bool as_json = false;
  bool with_source = false;
  std::string stacks_are = {};  // the line that replaces a worker's stack
  bool at_once = false;         // stacks are not replaced, because the end of one shows only with the next line
  std::optional<std::uint32_t> rank{};  // in a group
  std::optional<std::uint32_t> tail{};  // prints only so many of the lines, counted without stacks; empty: all, at once
};

class log_printer {
 public:
  explicit log_printer(log_style how) : how_(std::move(how)), prefix_(how_.rank ? fmt::format("[rank{}] ", *how_.rank) : std::string()) {}

  void tell(const json& line) {
    if (how_.as_json) return print_json("penstock.log/1", of_rank(line));
    const auto source = line.at("source").get<std::string>();
    output& of = of_process(source, line.value("incarnation", std::uint64_t{0}));
    if (line.contains("dropped"))
      show_line(fmt::format("{}({} of {} dropped)", prefix_, counted(line.at("dropped").get<std::uint64_t>(), "line", "lines"), source));
    const auto text = line.at("text").get<std::string>();
    show(source, how_.at_once || source == "gpu" ? std::vector{text} : of.stacks.pass(text));  // `deaths` has no stacks of owners
  }
  /// No further lines follow.
  void end() {
    for (auto& [source, of] : sources_) show(source, of.stacks.rest());
    for (const std::string& line : last_) print(line);
    last_.clear();
  }

 private:
  struct output {
    std::uint64_t incarnation;
    folded_stacks stacks;
  };

  [[nodiscard]] json of_rank(const json& line) const {
    json with_rank = how_.rank ? json{{"rank", *how_.rank}} : json::object();
    with_rank.update(line);
    return with_rank;
  }
  /// Prints a mark where the output of a new process in the same place begins.
  output& of_process(const std::string& source, std::uint64_t incarnation) {
    const auto [known, is_first] = sources_.try_emplace(source, output{incarnation, folded_stacks(how_.stacks_are)});
    output& of = known->second;
    if (is_first || of.incarnation == incarnation) return of;
    show(source, of.stacks.rest());
    of = {incarnation, folded_stacks(how_.stacks_are)};
    show_line(fmt::format("{}-- {}: a new process, incarnation {} --", prefix_, source, incarnation));
    return of;
  }
  void show(const std::string& source, const std::vector<std::string>& lines) {
    for (const std::string& text : lines) show_line(prefix_ + (how_.with_source ? fmt::format("{}  {}", source, text) : text));
  }
  void show_line(const std::string& line) {
    if (!how_.tail) return print(line);
    last_.push_back(line);
    if (last_.size() > *how_.tail) last_.pop_front();
  }

  log_style how_;
  std::string prefix_;
  std::map<std::string, output> sources_;  // the process of each place whose line was printed last
  std::deque<std::string> last_;           // with a tail: the lines to print at the end
};

/// Follows the logs until the session ends.
void follow(const std::filesystem::path& socket, json question, json seen, log_printer& printer) {
  question["follow"] = true;
  question.erase("tail");
  while (true) {
    question["after"] = seen;
    const auto answer = ask(socket, question, std::nullopt);
    if (!answer || !answer->value("ok", false)) return;  // the session has ended
    const json& result = answer->at("result");
    for (const json& line : result.at("lines")) printer.tell(line);
    if (result.at("seen") == seen && result.at("lines").empty()) return;
    seen = result.at("seen");
  }
}

/// How many lines of the predecessor to show if the current process has written nothing.
constexpr std::uint32_t previous_lines = 20;

/// Called if the current process has written nothing yet: shows the last output of an earlier one, which may say why it died.
bool show_predecessor(const log_options& o, const std::filesystem::path& socket, json question, log_style how) {
  question["previous"] = true;
  how.tail = o.tail.value_or(previous_lines);
  const auto answer = ask(socket, question, look_deadline);
  if (!answer || !answer->value("ok", false)) return false;
  const json& lines = answer->at("result").at("lines");
  if (lines.empty()) return false;
  say(fmt::format("no output yet from the current process; the last lines of an earlier one, incarnation {} (penstock logs {} --previous{}):",
                  lines.back().value("incarnation", std::uint64_t{0}), printable(o.target), choice_in_words(o.choice)));
  log_printer printer(how);
  for (const json& line : lines) printer.tell(line);
  printer.end();
  return true;
}

/// Prints existing lines and, with --follow, new ones.
int logs_of(const log_options& o, const std::filesystem::path& socket, const json& question,
            const log_style& how) {
  const session_answer first = request(o.choice, socket, question);
  if (first.refused != exit_ok) return first.refused;
  log_printer printer(how);
  for (const json& line : first.result.at("lines")) printer.tell(line);
  if (o.follow) follow(socket, question, first.result.at("seen"), printer);
  printer.end();
  if (o.follow) return exit_ok;
  if (first.result.at("lines").empty() && !o.choice.as_json && !how.rank && !(!o.previous && show_predecessor(o, socket, question, how)))
    say(o.previous                   ? "no output from an earlier process of this target"
        : control::is_record(socket) ? "no output was kept"
                                     : "no output yet");
  return exit_ok;
}

int logs_of_group(const log_options& o, const live_group& group, const json& question, const log_style& how) {
  std::atomic<int> code = exit_ok;
  std::vector<std::thread> readers;
  for (const live_rank& r : group.ranks) {
    const auto read = [&code, &o, &r, &question, &how] {
      log_style of_rank = how;
      of_rank.rank = r.rank;
      const int refused = logs_of(o, r.session.socket, question, of_rank);
      if (refused != exit_ok) code = refused;
    };
    // Rank by rank; with --follow all at once, because no rank's output ends.
    o.follow ? static_cast<void>(readers.emplace_back(read)) : read();
  }
  for (std::thread& reader : readers) reader.join();
  return code;
}

int logs(log_options o) {
  if (const int no = name_worker(o.choice, o.target); no != exit_ok) return no;
  const auto meant = parse_target(o.target);
  if (!meant || meant->kind == target_kind::scheduler) {
    return no_such_target(
        o.choice, fmt::format("'{}' has no log: use worker/N, workers, gpu or all", printable(o.target)));
  }
  json question{{"verb", "logs"}, {"target", o.target}, {"previous", o.previous}};
  log_style how{o.choice.as_json, meant->kind == target_kind::all || meant->kind == target_kind::workers,
                      fmt::format("(its stack: `penstock deaths --stacks{}`)", choice_in_words(o.choice))};
  how.at_once = o.follow;
  // If stacks are replaced, the session cannot count the lines that are left.
  if (o.choice.as_json || o.follow) {
    if (o.tail) question["tail"] = *o.tail;
  } else {
    how.tail = o.tail;
  }
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  if (group.group) return logs_of_group(o, *group.group, question, how);
  const chosen_socket socket = choose_to_show(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  return logs_of(o, socket.path, question, how);
}

}  // namespace

void add_log_commands(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<log_options>(
      verbs,
      {"logs",
       verb_group::operate,
       "show the output of a session's processes",
       "The last 64 KiB of stdout and stderr of each process, and of the last earlier process in the same place that wrote any. A mark "
       "shows where the output of a new process begins. One line replaces each stack of a dying worker, which `penstock deaths --stacks` "
       "shows; with --follow or --json, stacks are printed in full. With --json, one object per line, with the incarnation.",
       {{"penstock logs worker/3 --previous", "the last output of the process that died there"},
        {"penstock logs workers -f", "all workers, as they write"},
        {"penstock logs gpu --group photos", "the GPU owner of each rank"},
        {"penstock logs all --tail 20 --json", "for scripts"}}},
      logs);
  add_group_choice(verb, o->choice);
  add_past_choice(verb, o->choice);
  verb.add_option("TARGET", o->target, "worker/N, workers, gpu or all");
  verb.add_flag("-f,--follow", o->follow, "continue until the session ends");
  verb.add_flag("--previous", o->previous, "the output of the last earlier process that wrote any");
  takes_whole_number(verb.add_option("--tail", o->tail, "only the last N lines"),
                     {0, std::numeric_limits<std::uint32_t>::max()});
}

}  // namespace penstock::cli
