// Samples per second over the last 10 s, from a running total that is read about once a second. Pure; used by run_rates.
#pragma once

#include "runtime/base/clock.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace penstock::telemetry {

class rate_meter {
 public:
  static constexpr nanoseconds span = std::chrono::seconds(10);

  /// The first interval begins here, with a total of 0.
  explicit rate_meter(steady_time begun) : points_{{begun, 0}} {}

  /// Takes a reading. `total` must not fall.
  void add(steady_time now, std::uint64_t total) {
    points_.push_back({now, total});
    // Keep one point that is at least a whole span old.
    while (points_.size() > 2 && now - points_[1].at >= span) points_.pop_front();
  }
  /// Leaves out the time since the last reading, and the samples that arrived in that
  /// time. `total` never falls.
  void skip(steady_time now, std::uint64_t total) {
    const point last = points_.back();
    for (point& p : points_) {
      p.at += now - last.at;
      p.total += total - last.total;
    }
  }
  /// Empty until the first reading.
  [[nodiscard]] std::optional<double> per_second() const {
    const std::chrono::duration<double> time = points_.back().at - points_.front().at;
    if (time.count() <= 0) return std::nullopt;
    return static_cast<double>(points_.back().total - points_.front().total) / time.count();
  }

 private:
  struct point {
    steady_time at;
    std::uint64_t total;
  };
  std::deque<point> points_;
};

}  // namespace penstock::telemetry
