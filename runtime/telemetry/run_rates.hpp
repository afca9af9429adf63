// What a run delivers a second, and what each of its workers loads a second, over the same last 10 s. Time in which the run was
// paused or suspended does not count. Pure; used by the progress ticker.
#pragma once

#include "runtime/telemetry/rate_meter.hpp"

#include <penstock/report.hpp>

#include <map>
#include <optional>

namespace penstock::telemetry {

/// Samples, jobs, or a data loader's batches per second; empty if unknown.
struct rates_told {
  std::optional<double> delivered{};
  std::map<std::uint32_t, double> loaded{};  ///< by worker, with those of earlier processes in its place
};

class run_rates {
 public:
  explicit run_rates(steady_time begun) : delivered_(begun), looked_(begun) {}

  /// Call about once a second. `was_suspended`: for a part of the time since the last look, which then does not count.
  void look(steady_time now, const session_status& status, bool was_suspended);
  [[nodiscard]] rates_told told() const;

 private:
  struct place {
    rate_meter meter;
    std::uint32_t incarnation = 0;
    std::uint64_t seen = 0;   // of this incarnation
    std::uint64_t total = 0;  // of all incarnations
  };

  rate_meter delivered_;
  std::map<std::uint32_t, place> places_;
  steady_time looked_;
  bool was_paused_ = false;
};

}  // namespace penstock::telemetry
