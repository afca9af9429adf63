// A job worker program that no pool started: says what it is, or runs one function in this very process, so that it can
// be debugged (gdb, ASan, perf). Used by job_main.
//
//   my-worker --run thumbnail < photo.jpg > small.jpg
//   my-worker --list
#pragma once

#include "actors/job_worker/job_runner.hpp"
#include "runtime/base/result.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock::job_worker {

struct by_hand_request {
  bool asked = false;  ///< one of our options is there
  bool help = false;
  bool list = false;
  std::string function;  ///< to run; empty: none
};

/// The arguments of the program, without its name. What stands before the first of our options belongs to the program
/// (`./my-worker --commands --run command`); from there on all must be ours. Refuses with errc::usage.
result<by_hand_request> parse_by_hand(const std::vector<std::string>& arguments);

/// What `--help` prints.
std::string by_hand_help(std::string_view program);

/// Does what is asked: the argument is what stdin holds, the result goes to stdout, what the function itself prints and
/// mistakes to stderr. Returns the exit code for main: 0; 1: the function threw; 2: wrong usage; 78: nothing was asked.
int run_by_hand(const std::vector<named_function>& functions);

}  // namespace penstock::job_worker
