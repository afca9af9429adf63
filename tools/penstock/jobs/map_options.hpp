// The command line of `penstock map`.
#pragma once

#include "runtime/base/result.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/jobs/input_lines.hpp"
#include "tools/penstock/jobs/output_format.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace penstock::cli {

struct map_options {
  config_source source;
  std::string function;
  std::string command;
  std::string program;
  std::string input = "-";
  bool null = false;
  std::string output = "-";
  bool raw = false;
  bool tag = false;
  std::string results;
  std::uint32_t retries = 0;
  std::string halt = "never";
  std::string journal;
  std::string job_log;
  std::string memory;
  bool retry_failed = false;
  bool fail_on_exit = false;
  std::string on_bad_line = "fail";
  std::string keep_output = "1MiB";
  bool dry_run = false;
  bool json = false;
  bool quiet = false;

  [[nodiscard]] line_end end_of_lines() const { return null ? line_end::nul : line_end::line_feed; }
  [[nodiscard]] output_format format() const {
    return tag ? output_format::tagged : raw ? output_format::raw : output_format::json;
  }
};

/// When failed jobs end the run.
struct halt_rule {
  std::uint64_t failures_max = 0;  ///< 0: never
  bool cancels_running = false;    ///< false: running jobs finish
};
/// "never", "soon,fail=3", "now,fail=1". Refuses (errc::usage) anything else.
[[nodiscard]] result<halt_rule> halt_rule_from(const std::string& text);

/// Refuses (errc::usage) options that contradict each other.
[[nodiscard]] result<void> check_usage(const map_options& o);

void add_map_options(CLI::App& verb, const std::shared_ptr<map_options>& o);

}  // namespace penstock::cli
