// The progress line and the closing line of `penstock map`. Pure.
#pragma once

#include "tools/penstock/jobs/map_run.hpp"

#include <penstock/report.hpp>

#include <optional>
#include <string>

namespace penstock::cli {

struct map_status {
  map_counts counts;
  std::optional<std::uint64_t> input_bytes;  ///< total; empty if unknown
  session_status pool;
};

/// "[====>     ]  42 %  1234 jobs  56 jobs/s  3 failed  8 s left  2 workers".
[[nodiscard]] std::string map_progress_line(const map_status& now, const map_status& before,
                                            double seconds_between, std::size_t width, bool with_bar);

/// "10000 jobs: 9998 ok, 1 exception, 1 poisoned; 500 from the journal".
[[nodiscard]] std::string map_counts_line(const map_counts& counts);

}  // namespace penstock::cli
