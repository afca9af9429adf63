// The CLI's output: text for people on stderr, one JSON object for scripts on stdout, and fixed exit codes.
#pragma once

#include "runtime/base/exit_codes.hpp"
#include "runtime/base/result.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

/// Documented by `penstock help exit-codes`.
enum exit_code : int {
  exit_ok = exit_codes::finished,
  exit_failed = exit_codes::failed,
  exit_usage = 2,
  exit_not_met = exit_codes::not_met,
  exit_no_target = exit_codes::no_target,
  exit_no_session = 5,
  exit_timed_out = 6,
  exit_refused = exit_codes::refused,
  exit_config = exit_codes::configuration,
  exit_interrupted = 130,
  exit_terminated = 143,
};

/// Whether to use colours on a stream: only on a terminal, not with NO_COLOR or TERM=dumb.
[[nodiscard]] bool colours_on(int fd);
[[nodiscard]] bool is_terminal(int fd);
/// The terminal's columns; 0 for no limit if the descriptor is not a terminal: files and pipes get whole
/// lines.
[[nodiscard]] std::size_t terminal_width(int fd);

enum class style { plain, bold, red, yellow, green, faint };
/// The text in this style if stderr has colours.
[[nodiscard]] std::string styled(style how, std::string_view text);

/// say() prints a line to stderr, print() a line to stdout. Both ignore write errors (a closed pipe).
void say(std::string_view line);
/// Text with its own line ends.
void say_raw(std::string_view text);
void print(std::string_view line);
void print_raw(std::string_view text);
/// Prints one line. Each object has a `schema`: its own, or else this one.
void print_json(const nlohmann::ordered_json& what);
void print_json(std::string_view schema, const nlohmann::ordered_json& what);

/// Reports a failure as text or JSON and returns the exit code. `next`: the command to try now, for a "next:" line or the error's `next`.
int refuse_with(exit_code code, const failure& why, bool json, const std::string& next = {});
/// Keeps the words of the command line for typed_again().
void note_typed(std::vector<std::string> words);
/// For `next`: the command as it was typed, quoted for a shell, but about another session: "penstock describe worker/3 --last".
/// `choice` takes the place of --session, --socket, --group and --last; --json is left out, and --follow if `choice` is of an ended session.
[[nodiscard]] std::string typed_again(const std::string& choice);
/// refuse_with() for exit_no_target; the error's kind in JSON is "no_target", as in a session's own refusal.
int refuse_target(const std::string& why, bool json);

}  // namespace penstock::cli
