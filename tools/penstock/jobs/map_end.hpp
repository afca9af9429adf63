// How a run of `map` ended: its summary as JSON and in words, and its exit code. Used by the map command.
#pragma once

#include "tools/penstock/jobs/map_options.hpp"
#include "tools/penstock/jobs/map_run.hpp"

#include <optional>

namespace penstock::cli {

struct map_result {
  map_counts counts;
  double seconds = 0;
  std::optional<failure> trouble;
  int signal = 0;
  bool by_order = false;  // `penstock stop` ended the run
  [[nodiscard]] bool stopped() const {
    return signal != 0 || by_order || (trouble && trouble->code == errc::stopped);
  }
};

/// Prints the summary; returns the exit code.
int tell_end(const map_options& o, const map_result& r);

}  // namespace penstock::cli
