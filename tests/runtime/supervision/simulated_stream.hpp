// A simulated stream for tests of worker_tuner. A curve gives the rate for a number of workers; the cores and the consumer's
// rate are given too. The test sets the clock.
#pragma once

#include "runtime/supervision/worker_tuner.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <vector>

namespace penstock::testing {

using namespace std::chrono_literals;
using supervision::tuner_step;
using supervision::worker_tuner;

struct stream_plan {
  double cores = 16;
  double own_cores = 0.1;                       // cores that the training program uses
  double demand = 1;                            // cores for a busy worker; less: it waits for storage
  std::function<double(double)> loads{};        // samples a second of that many workers, each with a core
  double takes = 1e9;                           // samples a second that the consumer takes
  double noise = 0.02;                          // relative error of the rate that a look measures
  nanoseconds start = 100ms;                    // how long a worker takes to start
};

class simulated_stream {
 public:
  simulated_stream(stream_plan of, supervision::tuner_limits limits, std::uint32_t workers, std::uint64_t seed)
      : plan(std::move(of)), tuner(limits, workers), random_(seed), ready_(workers) {}

  stream_plan plan;
  worker_tuner tuner;
  std::vector<tuner_step> steps;

  /// The tuner's steps, printed for people.
  [[nodiscard]] std::string history() const {
    std::string text;
    for (const tuner_step& s : steps) {
      const std::chrono::duration<double> at = s.at - steady_time(1000s);
      text += fmt::format("{:.1f} s: {} workers after {}: {}\n", at.count(), s.to, s.from, s.why);
    }
    return text;
  }

  /// The rate of this number of workers if the consumer took every sample.
  [[nodiscard]] double capacity(std::uint32_t workers) const {
    const double wanted = workers * plan.demand + plan.own_cores;
    const double share = std::min(1.0, plan.cores / wanted);
    return plan.loads(workers) * (plan.demand * workers > 0.5 * plan.cores ? share : 1.0);
  }
  [[nodiscard]] double fastest(std::uint32_t most) const {
    double rate = 0;
    for (std::uint32_t n = 1; n <= most; ++n) rate = std::max(rate, capacity(n));
    return rate;
  }

  void run_for(nanoseconds time) {
    for (const steady_time end = now_ + time; now_ < end;) look();
  }
  void look() {
    constexpr double dt = 0.2;
    now_ += 200ms;
    if (tuner.workers() != ready_ && now_ >= ready_at_) ready_ = tuner.workers();
    std::normal_distribution<double> error(1, plan.noise);
    const double can = capacity(ready_) * std::max(error(random_), 0.1);
    const double rate = std::min(can, plan.takes);
    const double busy = plan.takes > 0 ? rate / can : 0;
    const double wanted = ready_ * plan.demand * busy + plan.own_cores;
    const double share = std::min(1.0, plan.cores / wanted);
    facts_.flows = true;
    facts_.waited_seconds += plan.takes > can ? dt * (1 - can / plan.takes) : 0;
    delivered_ += rate * dt;
    facts_.delivered = static_cast<std::uint64_t>(delivered_);
    facts_.own_cpu += in_ns(dt * plan.own_cores * share);
    facts_.workers.resize(std::max<std::size_t>(facts_.workers.size(), ready_));
    std::bernoulli_distribution is_busy(std::min(busy, 1.0));
    for (std::uint32_t w = 0; w < facts_.workers.size(); ++w) {
      auto& one = facts_.workers[w];
      one.id = w;
      one.ready = w < ready_;
      one.busy = one.ready && is_busy(random_);
      if (!one.ready) continue;
      one.cpu += in_ns(dt * plan.demand * busy * share);
      one.core_wait += in_ns(dt * plan.demand * busy * (1 - share));
      // Workers are not in step: if all of them finished their samples in the same look, few looks would show the true rate.
      double& loaded = loaded_.try_emplace(w, std::uniform_real_distribution<double>(0, 1)(random_)).first->second;
      one.samples = static_cast<std::uint64_t>(loaded += rate * dt / ready_);
    }
    if (auto step = tuner.look(now_, facts_)) {
      steps.push_back(*step);
      ready_at_ = now_ + plan.start;
    }
  }

 private:
  static nanoseconds in_ns(double seconds) { return nanoseconds(static_cast<std::int64_t>(seconds * 1e9)); }

  std::mt19937_64 random_;
  steady_time now_ = steady_time(1000s);
  steady_time ready_at_{};
  std::uint32_t ready_;
  double delivered_ = 0;
  std::map<std::uint32_t, double> loaded_;
  supervision::tuner_facts facts_;
};

inline std::function<double(double)> saturates_at(double rate, double workers) {
  return [=](double n) { return rate * std::min(n, workers); };
}
/// Each worker beyond `workers` slows the others down.
inline std::function<double(double)> worse_beyond(double rate, double workers, double loss) {
  return [=](double n) { return rate * std::min(n, workers) / (1 + loss * std::max(n - workers, 0.0)); };
}

}  // namespace penstock::testing
