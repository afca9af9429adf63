#include "tools/penstock/watch/top.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/control/control_client.hpp"
#include "runtime/control/socket_place.hpp"
#include "tools/penstock/group/group_verbs.hpp"
#include "tools/penstock/past/choose_past.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/full_screen.hpp"
#include "tools/penstock/watch/latest_event.hpp"
#include "tools/penstock/watch/top_screen.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <thread>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

constexpr auto rates_over = 3s;     // long enough to be steady, short enough to be current
constexpr auto mean_over = 10s;     // for comparing runs
constexpr std::chrono::milliseconds screen_deadline = 2s;

/// Polls the session; keeps the samples for rates, and the latest event.
class watcher {
 public:
  watcher(std::filesystem::path socket, json first) : socket_(std::move(socket)) { take(std::move(first)); }

  result<void> look() {
    auto answer = control::ask(socket_, {{"verb", "pipeline"}}, screen_deadline);
    if (!answer) return tl::unexpected(answer.error());
    if (!answer->value("ok", false)) return refuse(errc::protocol, "the session does not support this");
    take(std::move(answer->at("result")));
    return {};
  }
  void take(json answer) {
    seen_.push_back(std::move(answer));
    const auto age = [&](const json& one) {
      return nanoseconds(newest().value("now_ns", std::int64_t{0}) - one.value("now_ns", std::int64_t{0}));
    };
    while (seen_.size() > 2 && age(seen_[1]) >= mean_over) seen_.pop_front();
    recent_ = 0;
    while (recent_ + 2 < seen_.size() && age(seen_[recent_ + 1]) >= rates_over) ++recent_;
    read_events();
  }
  void order(const char* verb) { static_cast<void>(control::ask(socket_, {{"verb", verb}}, screen_deadline)); }
  [[nodiscard]] const json& newest() const { return seen_.back(); }
  [[nodiscard]] std::vector<std::string> screen(screen_size size, std::size_t first_worker, bool colours) const {
    return top_screen({seen_.front(), seen_[recent_], seen_.back()}, event_.in_words(std::chrono::system_clock::now()), size, first_worker, colours);
  }

 private:
  void read_events() {
    while (true) {  // an answer has at most 500 events
      const auto answer = control::ask(socket_, {{"verb", "events"}, {"after", heard_}}, screen_deadline);
      if (!answer || !answer->value("ok", false)) return;
      const json& all = answer->at("result").at("events");
      if (all.empty()) return;
      for (const json& e : all) event_.hear(e);
      heard_ = all.back().at("number").get<std::uint64_t>();
    }
  }

  std::filesystem::path socket_;
  std::deque<json> seen_;
  std::size_t recent_ = 0;  // start of the period for rates; the mean starts at the front
  std::uint64_t heard_ = 0;  // the number of the last event
  latest_event event_;
};

/// How the session that listened here ended. `pid`: its process; 0: unknown.
std::string end_behind(const std::filesystem::path& socket, int pid) {
  const auto record = record_of(socket, pid);
  const std::string how = record ? end_with_reason(*record) : "";
  return how.empty() ? "the session is over" : fmt::format("'{}' {}\n{}", printable(socket.stem().string()), how, files_of_ended(*record));
}

int print_screen(const watcher& watch) {
  const screen_size size{terminal_width(STDOUT_FILENO), 1000};
  std::vector<std::string> lines = watch.screen(size, 0, false);
  lines.pop_back();  // drop the line about keys
  std::string text;
  for (const std::string& line : lines) {
    if (!line.empty() || !text.ends_with("\n\n")) text += line + "\n";
  }
  print_raw(text);
  return exit_ok;
}

int print_objects(watcher& watch, const std::filesystem::path& socket, const top_options& o, std::chrono::milliseconds every) {
  while (true) {
    print_json("penstock.top/1", watch.newest());
    if (o.once) return exit_ok;
    std::this_thread::sleep_for(every);
    const auto ok = watch.look();
    if (!ok && ok.error().code != errc::timed_out) return exit_ok;  // the session has ended
    if (ok) continue;
    session_answer late = request(o.choice, socket, {{"verb", "pipeline"}}, screen_deadline);
    if (late.refused != exit_ok) return late.refused;
    watch.take(std::move(late.result));
  }
}

/// The first worker to show after a key; empty if the key means something else.
std::optional<std::size_t> scrolled(std::size_t first, char key, const json& now, screen_size size) {
  const std::size_t more = more_lines(now, size);
  const std::size_t last = last_first_worker(workers_shown(now), size, more);
  const std::size_t page = std::max<std::size_t>(rows_for_workers(size, more), 1);
  switch (key) {
    case 'j': return std::min(first + 1, last);
    case 'k': return first - std::min<std::size_t>(first, 1);
    case ' ': return std::min(first + page, last);
    case 'b': return first - std::min(first, page);
    case 'g': return 0;
    case 'G': return last;
    default: return std::nullopt;
  }
}

int watch_live(watcher& watch, const std::filesystem::path& socket, std::chrono::milliseconds every) {
  int code = exit_ok;
  const int pid = control::process_behind(socket);
  std::string last_words;
  {
    auto screen = full_screen::take();
    if (!screen) return refuse_with(exit_failed, screen.error(), false);
    const bool colours = colours_on(STDOUT_FILENO);
    auto next_look = std::chrono::steady_clock::now() + every;
    std::size_t first_worker = 0;
    while (true) {
      const std::size_t more = more_lines(watch.newest(), screen->size());
      first_worker = std::min(first_worker, last_first_worker(workers_shown(watch.newest()), screen->size(), more));
      screen->show(watch.screen(screen->size(), first_worker, colours));
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(next_look - std::chrono::steady_clock::now());
      const full_screen::input got = screen->wait(std::max(left, std::chrono::milliseconds(0)));
      if (got.key == 'q' || got.key == 'Q' || got.closed) break;
      if (got.key == 'p')
        watch.order(watch.newest().at("status").at("state") == "paused" ? "resume" : "pause");
      if (const auto to = scrolled(first_worker, got.key, watch.newest(), screen->size())) {
        first_worker = *to;
        continue;
      }
      if (got.signal != 0 && got.signal != SIGWINCH) {
        code = 128 + got.signal;
        break;
      }
      if (got.key != 'p' && std::chrono::steady_clock::now() < next_look) continue;
      if (auto ok = watch.look(); !ok) {
        last_words = suspension_of(socket);
        if (last_words.empty()) last_words = ok.error().code == errc::timed_out ? "the session does not answer" : end_behind(socket, pid);
        break;
      }
      next_look = std::chrono::steady_clock::now() + every;
    }
  }
  for (const std::string& line : lines_in(last_words)) say(wrapped(line, terminal_width(STDERR_FILENO), 2));
  return code;
}

}  // namespace

int top(const top_options& o) {
  const auto every = parse_duration(o.every);
  if (!every || *every < 50ms || *every > 1h) {
    const std::string why = every ? fmt::format("{} is not between 50ms and 1h", printable(o.every)) : every.error().message;
    return refuse_with(exit_usage, {errc::usage, "--every: " + why, 0}, o.choice.as_json);
  }
  const auto interval = std::chrono::ceil<std::chrono::milliseconds>(*every);
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  if (group.group) return top_of_group(o.choice, *group.group, interval, o.once);
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  session_answer first = request(o.choice, socket.path, {{"verb", "pipeline"}}, screen_deadline);
  if (first.refused != exit_ok) return first.refused;
  watcher watch(socket.path, std::move(first.result));
  if (o.choice.as_json) return print_objects(watch, socket.path, o, interval);
  if (o.once || !is_terminal(STDOUT_FILENO) || !is_terminal(STDIN_FILENO)) return print_screen(watch);
  return watch_live(watch, socket.path, interval);
}

}  // namespace penstock::cli
