// A worker program started by hand instead of by a session or a pool: command line and startup. The rest is in
// loader/by_hand and job_worker/by_hand.
#pragma once

#include "runtime/base/exit_codes.hpp"
#include "runtime/base/result.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace penstock::child {

constexpr int exit_usage = 2;

struct by_hand_request {
  bool asked = false;  ///< whether one of our options was given
  bool help = false;
};

/// One of our options: a flag to set, or a function that takes its value and may refuse it (errc::usage).
struct by_hand_option {
  std::string_view name;
  std::variant<bool*, std::function<result<void>(const std::string& value)>> what;
};

/// Accepts "--load 7", "--load=7" and "--help". Arguments before the first of our options belong to the program;
/// from there on, all must be our options. Returns whether there was one. Refuses with errc::usage.
result<bool> parse_by_hand(const std::vector<std::string>& arguments,
                           const std::vector<by_hand_option>& options);

/// This process's arguments, beginning with the program's name. Read here, so that a worker program's main
/// need not pass them.
std::vector<std::string> own_arguments();

/// Flushes stdout, then prints the error to stderr.
void complain(std::string_view program, const std::string& what);
void print_help(const std::string& text);
/// In `what_to_do`, {} stands for the program.
void print_not_asked(std::string_view program, std::string_view what_to_do);

/// Parses this process's arguments with `parse`. Handles usage errors, --help and a start without options itself;
/// otherwise returns what run(request, program) returns.
template <class Request, class Run>
int start_by_hand(result<Request> (*parse)(const std::vector<std::string>&),
                  std::string (*help)(std::string_view), std::string_view not_asked, Run run) {
  std::vector<std::string> arguments = own_arguments();
  const std::string program = arguments.empty() ? "worker" : arguments.front();
  if (!arguments.empty()) arguments.erase(arguments.begin());
  const result<Request> request = parse(arguments);
  if (!request) {
    complain(program, request.error().message);
    return exit_usage;
  }
  if (request->help) {
    print_help(help(program));
    return exit_codes::finished;
  }
  if (request->asked) return run(*request, program);
  print_not_asked(program, not_asked);
  return exit_codes::configuration;
}

}  // namespace penstock::child
