#include "tools/penstock/output.hpp"

#include "runtime/base/shell_words.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace penstock::cli {
namespace {

/// Ignores errors: there is nowhere to report that a stream is closed or full.
void write_text(int fd, std::string_view text) {
  static_cast<void>(write_all(fd, text));
}

/// Writes the line in one write, so that lines of different threads do not mix.
void write_line(int fd, std::string_view line) {
  write_text(fd, std::string(line) + "\n");
}

std::string_view escape_of(style how) {
  switch (how) {
    case style::bold: return "\x1b[1m";
    case style::red: return "\x1b[1;31m";
    case style::yellow: return "\x1b[1;33m";
    case style::green: return "\x1b[1;32m";
    case style::faint: return "\x1b[2m";
    case style::plain: break;
  }
  return "";
}

std::vector<std::string>& typed_words() {
  static std::vector<std::string> words;
  return words;
}

}  // namespace

void note_typed(std::vector<std::string> words) {
  typed_words() = std::move(words);
}

std::string typed_again(const std::string& choice) {
  const bool is_past = choice.starts_with("--last") || choice.find('@') != std::string::npos;
  std::string text = "penstock";
  bool is_value = false;
  for (const std::string& word : typed_words()) {
    if (std::exchange(is_value, false)) continue;
    const bool chooses = word == "--session" || word == "--socket" || word == "--group";
    is_value = chooses;
    if (is_past && (word == "-f" || word == "--follow")) continue;  // omitted, because a record does not grow
    if (chooses || word == "--last" || word == "--json" || word.starts_with("--session=") || word.starts_with("--socket=") || word.starts_with("--group=")) continue;
    text += " " + shell_word(printable(word));
  }
  return text + " " + choice;
}

bool is_terminal(int fd) {
  return ::isatty(fd) == 1;
}

bool colours_on(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return is_terminal(fd) && (no_colour == nullptr || *no_colour == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

std::size_t terminal_width(int fd) {
  constexpr std::size_t usual = 80;  // for a terminal that does not report its size
  if (!is_terminal(fd)) return 0;
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return usual;
}

std::string styled(style how, std::string_view text) {
  static const bool colours = colours_on(STDERR_FILENO);
  if (!colours || how == style::plain) return std::string(text);
  return std::string(escape_of(how)).append(text).append("\x1b[0m");
}

void say(std::string_view line) {
  write_line(STDERR_FILENO, line);
}
void say_raw(std::string_view text) {
  write_text(STDERR_FILENO, text);
}
void print(std::string_view line) {
  write_line(STDOUT_FILENO, line);
}

void print_raw(std::string_view text) {
  write_text(STDOUT_FILENO, text);
}

void print_json(const nlohmann::ordered_json& what) {
  print(what.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_json(std::string_view schema, const nlohmann::ordered_json& what) {
  nlohmann::ordered_json all{{"schema", schema}};
  all.update(what);
  print_json(all);
}

int refuse_with(exit_code code, const failure& why, bool json, const std::string& next) {
  if (json) {
    auto all = telemetry::as_json(why);
    if (!next.empty()) all["error"]["next"] = next;
    print_json("penstock.error/1", all);
  } else {
    say(styled(style::red, "error:") + " " + why.message);
    if (!next.empty()) say("next: " + next);
  }
  return code;
}

int refuse_target(const std::string& why, bool json) {
  if (json) {
    print_json("penstock.error/1", {{"error", {{"kind", "no_target"}, {"message", why}}}});
  } else {
    say(styled(style::red, "error:") + " " + why);
  }
  return exit_no_target;
}

}  // namespace penstock::cli
