// How much a run delivers per second, and how much each of its workers loads per second, over the last 10 s.
// Pauses and suspensions of the run do not count, nor does the time until a worker is ready. Pure; used by the progress ticker.
#pragma once

#include "runtime/telemetry/rate_meter.hpp"

#include <penstock/report.hpp>

#include <map>
#include <optional>

namespace penstock::telemetry {

/// Samples, jobs, or a data loader's batches per second; empty if unknown.
struct rates_told {
  std::optional<double> delivered{};
  std::map<std::uint32_t, double> loaded{};  ///< by worker; includes earlier processes in the same place
};

class run_rates {
 public:
  explicit run_rates(steady_time begun) : delivered_(begun), looked_(begun) {}

  /// Call about once a second. `was_suspended`: whether the process was suspended since the last call; the
  /// time since then does not count in this case.
  void look(steady_time now, const session_status& status, bool was_suspended);
  [[nodiscard]] rates_told told() const;

 private:
  struct place {
    rate_meter meter;
    std::uint32_t incarnation = 0;
    std::uint64_t seen = 0;   // samples of the current incarnation
    std::uint64_t total = 0;  // samples of all incarnations
  };

  rate_meter delivered_;
  std::map<std::uint32_t, place> places_;
  steady_time looked_;
  bool was_paused_ = false;
  bool has_begun_ = false;  // whether any worker has been ready
};

}  // namespace penstock::telemetry
