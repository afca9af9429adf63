// A job worker program started without a pool: prints what it is, or runs one function in the current
// process, for debuggers and profilers (gdb, ASan, perf). Used by job_main.
//
//   my-worker --run thumbnail < photo.jpg > small.jpg
//   my-worker --list
#pragma once

#include "actors/child/by_hand.hpp"
#include "actors/job_worker/job_runner.hpp"
#include "runtime/base/result.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock::job_worker {

struct by_hand_request : child::by_hand_request {
  bool list = false;
  std::string function;  ///< the function to run; empty: none
};

/// The program's arguments, without its name; those before the first of our options belong to the program
/// (`./my-worker --commands --run command`). Refuses with errc::usage.
result<by_hand_request> parse_by_hand(const std::vector<std::string>& arguments);

/// What `--help` prints.
std::string by_hand_help(std::string_view program);

/// Runs the request: reads the argument from stdin and writes the result to stdout; errors and the function's
/// own output go to stderr. Returns the exit code for main: 0; 1: the function threw; 2: wrong usage; 78: no
/// request.
int run_by_hand(const std::vector<named_function>& functions);

}  // namespace penstock::job_worker
