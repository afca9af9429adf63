// Random pipelines: the tuner finds nearly the best number of workers in 20 s, and does not oscillate later.
#include "simulated_stream.hpp"
#include "tests/random_seed.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

using namespace penstock;
using namespace penstock::testing;

namespace {

struct drawing {
  std::mt19937_64 random;
  double between(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); }
  std::uint32_t whole(std::uint32_t low, std::uint32_t high) {
    return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
  }
};

stream_plan drawn(drawing& d) {
  stream_plan plan;
  const double rate = d.between(50, 5000);
  const double bend = d.between(1, 20);
  switch (d.whole(0, 3)) {
    case 0: plan.loads = [rate](double n) { return rate * n; }; break;
    case 1: plan.loads = saturates_at(rate, bend); break;
    case 2: plan.loads = worse_beyond(rate, std::max(bend, 2.0), d.between(0.01, 0.08)); break;
    default: plan.loads = [rate, bend](double n) { return rate * n / (1 + n / bend); }; break;
  }
  plan.own_cores = d.between(0, 1.4);
  plan.noise = d.between(0, 0.04);
  plan.start = std::chrono::milliseconds(d.whole(50, 300));
  return plan;
}

}  // namespace

TEST_CASE("from 1 worker on 16 cores the tuner is within 5 % of the best fixed number in 20 s") {
  drawing d{std::mt19937_64(seed_of_this_run("tuner"))};
  int missed = 0;
  for (int i = 0; i < 2000; ++i) {
    simulated_stream s(drawn(d), {1, 64, 16}, d.whole(0, 1) == 0 ? 1 : 16, d.random());
    s.run_for(20s);
    const double part = s.capacity(s.tuner.workers()) / s.fastest(16);
    INFO("world " << i << ": " << s.tuner.workers() << " workers, " << part << " of the best\n" << s.history());
    CHECK(part >= 0.8);
    missed += part < 0.95 ? 1 : 0;
  }
  // Noise of 4 % per look can hide 2 %.
  CHECK(missed <= 40);
}

TEST_CASE(
    "after the first search the tuner makes at most 3 changes in any minute, whatever the stream does") {
  drawing d{std::mt19937_64(seed_of_this_run("tuner"))};
  for (int i = 0; i < 300; ++i) {
    simulated_stream s(drawn(d), {d.whole(1, 3), 64, 16}, d.whole(3, 16), d.random());
    s.run_for(45s);  // the first search needs 20 s during which the stream flows
    for (int part = 0; part < 20; ++part) {
      if (d.whole(0, 2) == 0) s.plan.takes = d.whole(0, 1) == 0 ? 1e9 : d.between(10, 20000);
      if (d.whole(0, 4) == 0) s.plan.own_cores = d.between(0, 6);
      if (d.whole(0, 4) == 0) s.plan.loads = drawn(d).loads;
      s.run_for(30s);
    }
    std::vector<steady_time> later;
    for (const tuner_step& step : s.steps) {
      CHECK(step.from != step.to);
      CHECK_FALSE(step.why.empty());
      if (step.at > steady_time(1000s + 45s)) later.push_back(step.at);
    }
    INFO(s.history());
    for (std::size_t k = 3; k < later.size(); ++k) CHECK(later[k] - later[k - 3] >= 1min);
  }
}

TEST_CASE("after the first minute of a stream that stays the same, the tuner does not oscillate") {
  drawing d{std::mt19937_64(seed_of_this_run("tuner"))};
  int turns_of_all = 0;
  for (int i = 0; i < 300; ++i) {
    simulated_stream s(drawn(d), {1, 64, 16}, 16, d.random());
    if (d.whole(0, 1) == 0) s.plan.takes = d.between(0.1, 0.9) * s.fastest(16);
    s.run_for(1min);
    std::size_t seen = std::max<std::size_t>(s.steps.size(), 1);
    s.run_for(10min);
    int turns = 0;
    for (; seen < s.steps.size(); ++seen) {
      const tuner_step& before = s.steps[seen - 1];
      const tuner_step& after = s.steps[seen];
      turns += (before.to > before.from) != (after.to > after.from) ? 1 : 0;
    }
    INFO(s.history());
    CHECK(turns <= 4);
    turns_of_all += turns;
  }
  CHECK(turns_of_all <= 100);
}

TEST_CASE("with a slower consumer the tuner keeps no idle workers and causes no waits") {
  drawing d{std::mt19937_64(seed_of_this_run("tuner"))};
  for (int i = 0; i < 500; ++i) {
    stream_plan plan;
    const double rate = d.between(50, 2000);
    plan.loads = [rate](double n) { return rate * n; };
    const double need = d.between(0.3, 12);
    plan.takes = need * rate;
    simulated_stream s(std::move(plan), {1, 64, 16}, d.whole(0, 1) == 0 ? 1 : 16, d.random());
    s.run_for(60s);
    INFO("needs " << need << ", has " << s.tuner.workers());
    CHECK(s.tuner.workers() >= std::floor(0.93 * need));  // numbers of workers are whole
    CHECK(s.tuner.workers() <= std::ceil(1.2 * need + 2));
  }
}
