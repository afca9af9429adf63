// A worker program that was not started by a session: prints what it is, or loads samples in its own process,
// so that a dataset can be debugged (gdb, ASan, perf). Used by worker_main.
//
//   my-worker --config csv.toml --load 3,7,10-20
//   my-worker --config csv.toml --setup-only
#pragma once

#include "actors/child/by_hand.hpp"
#include "runtime/base/result.hpp"

#include <penstock/worker.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::loader {

/// Sample indices first .. last.
struct index_range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  bool operator==(const index_range&) const = default;
};

struct by_hand_request : child::by_hand_request {
  bool setup_only = false;
  std::string config;
  std::vector<std::string> sets;  ///< KEY=VALUE
  std::vector<index_range> samples;
  std::uint64_t epoch = 0;
};

/// The program's arguments, without its name; those before the first of our options belong to the program
/// (`./my-worker --shard 3 --config ...`). Refuses with errc::usage.
result<by_hand_request> parse_by_hand(const std::vector<std::string>& arguments);

/// What `--help` prints.
std::string by_hand_help(std::string_view program);

/// Does what the options say; results go to stdout, errors to stderr. Returns the exit code for main: 0; 1: a
/// sample failed; 2: wrong usage; 78: config or dataset unusable, or no option given.
int run_by_hand(const dataset_factory& make);

}  // namespace penstock::loader
