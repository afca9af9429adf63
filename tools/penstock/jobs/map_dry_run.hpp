// `penstock map --dry-run`: prints what would run for each line.
#pragma once

#include "tools/penstock/jobs/input_lines.hpp"
#include "tools/penstock/jobs/line_rules.hpp"
#include "tools/penstock/jobs/map_journal.hpp"
#include "tools/penstock/jobs/map_work.hpp"

#include <functional>
#include <string>
#include <vector>

namespace penstock::cli {

/// {"index":..,"words":[..]}. Pure.
[[nodiscard]] std::string words_as_json(std::uint64_t index, const std::vector<std::string>& words);

struct dry_run_rules {
  bad_line_rule bad_lines = bad_line_rule::fail;
  const map_journal* journal = nullptr;  ///< jobs in the journal do not run again
  bool retry_failed = false;             ///< jobs in the journal that are not ok run again
  bool as_json = false;
};

/// Calls `print` with a line for each job that would run.
result<void> dry_run(line_source& input, const work& what, const dry_run_rules& rules,
                     const std::function<void(const std::string&)>& print);

}  // namespace penstock::cli
