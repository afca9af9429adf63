// The command line of `penstock run`.
#pragma once

#include "tools/penstock/config_source.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/run/run_rank.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace penstock::cli {

struct run_options {
  config_source source;
  std::optional<std::uint64_t> batches;
  bool digest = false;
  run_files files;
  bool json = false;
  bool quiet = false;
  std::string state;
  std::string state_every = "10s";
  bool dry_run = false;
  int stopped_exit_code = exit_ok;
};

/// `o` must outlive the parser.
void add_run_options(CLI::App& verb, run_options& o);

}  // namespace penstock::cli
