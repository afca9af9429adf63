// Opens and checks the files of a run of `penstock map` before a job starts.
#pragma once

#include "runtime/base/result.hpp"
#include "tools/penstock/jobs/input_lines.hpp"
#include "tools/penstock/jobs/job_log.hpp"
#include "tools/penstock/jobs/map_journal.hpp"
#include "tools/penstock/jobs/map_options.hpp"
#include "tools/penstock/jobs/map_output.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace penstock::cli {

struct map_files {
  std::unique_ptr<line_source> input;
  map_output output;
  std::unique_ptr<map_journal> journal;  ///< null without --journal
  std::unique_ptr<job_log> log;          ///< null without --job-log
};

/// `work`: the work that the journal must match. `longest_line`: of longer lines, only the beginning is kept. For
/// --dry-run: opens only the input and an existing journal.
result<map_files> open_files(const map_options& o, const std::string& work, std::uint64_t longest_line);

}  // namespace penstock::cli
