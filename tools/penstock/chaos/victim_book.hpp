// Which workers the fault injector spares, so that faults never change a stream. Pure. One for each session.
//
// A worker's place is spared while [loader.restart] intensity allows no further death that is not blamed on a
// sample, because the run could then end (rules D16 and D17). A worker is also spared while it loads a sample
// that was hit often enough to be tried alone: further hits would quarantine the sample (rule D4).
// They are likely on a busy machine, where a worker that starts slowly is hit at its first sample.
#pragma once

#include <penstock/config.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace penstock::cli {

class victim_book {
 public:
  using time = std::chrono::system_clock::time_point;

  /// `max_attempts`: [quarantine] max_attempts.
  victim_book(const loader_intensity_config& intensity, std::uint32_t max_attempts);

  /// `sample`: the one that the death is blamed on, if any.
  void worker_died(std::uint32_t worker, std::optional<std::uint64_t> sample, time when);
  /// `sample`: the one that the worker is loading, if any.
  [[nodiscard]] bool may_be_struck(std::uint32_t worker, std::optional<std::uint64_t> sample, time now) const;

 private:
  loader_intensity_config intensity_;
  std::uint32_t hits_max_;                              // of a sample
  std::map<std::uint32_t, std::deque<time>> unblamed_;  // per place; one more may be in progress
  std::map<std::uint64_t, std::uint32_t> hits_;         // per sample
};

}  // namespace penstock::cli
