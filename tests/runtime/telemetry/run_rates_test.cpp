#include "runtime/telemetry/run_rates.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;
using telemetry::run_rates;

namespace {

const steady_time begun{1h};

worker_status worker(std::uint32_t id, std::uint32_t incarnation, std::uint64_t samples) {
  worker_status w;
  w.id = id;
  w.incarnation = incarnation;
  w.samples = samples;
  w.state = child_state::ready;
  return w;
}

/// A session that delivers 100 samples a second, half of them from each of two workers.
session_status after(int seconds) {
  session_status s;
  s.state = session_state::ok;
  s.samples_delivered = static_cast<std::uint64_t>(seconds) * 100;
  for (const std::uint32_t id : {0U, 1U}) s.workers.push_back(worker(id, 1, s.samples_delivered / 2));
  return s;
}

}  // namespace

TEST_CASE("batches that a data loader has loaded ahead count once its consumer takes them") {
  session_status s;
  s.jobs.emplace().of_batches = true;
  run_rates rates(begun);
  s.jobs->ok = 8;
  s.batches_delivered = 2;
  rates.look(begun + 1s, s, false);
  CHECK(rates.told().delivered == 2.0);
  s.jobs->of_batches = false;
  run_rates of_pool(begun);
  of_pool.look(begun + 1s, s, false);
  CHECK(of_pool.told().delivered == 8.0);
}

TEST_CASE("the rates of workers add up to that of the stream, from the first look on") {
  run_rates rates(begun);
  for (int second = 1; second <= 30; ++second) {
    rates.look(begun + second * 1s, after(second), false);
    const auto told = rates.told();
    CHECK(told.delivered == 100.0);
    CHECK(told.loaded == std::map<std::uint32_t, double>{{0, 50.0}, {1, 50.0}});
  }
}

TEST_CASE("a replaced worker's rate includes its predecessor's last seconds, and a new worker's begins with it") {
  run_rates rates(begun);
  session_status s;
  for (int second = 1; second <= 20; ++second) {
    const bool replaced = second > 15;
    s.workers = {worker(0, replaced ? 2 : 1, static_cast<std::uint64_t>(replaced ? second - 15 : second) * 10)};
    if (second > 18) s.workers.push_back(worker(1, 1, static_cast<std::uint64_t>(second - 18) * 7));
    rates.look(begun + second * 1s, s, false);
  }
  CHECK(rates.told().loaded == std::map<std::uint32_t, double>{{0, 10.0}, {1, 7.0}});
  s.workers.pop_back();  // scaled down
  s.workers[0].samples = 0;  // the worker's process is gone
  rates.look(begun + 21s, s, false);
  CHECK(rates.told().loaded == std::map<std::uint32_t, double>{{0, 9.0}});
}

TEST_CASE("suspensions and pauses of a run do not lower its rates") {
  run_rates rates(begun);
  for (int second = 1; second <= 12; ++second) rates.look(begun + second * 1s, after(second), false);
  SECTION("suspended") {
    rates.look(begun + 72s, after(12), true);
    rates.look(begun + 73s, after(13), false);
  }
  SECTION("paused, while its consumer takes what was ready") {
    session_status paused = after(13);
    paused.state = session_state::paused;
    for (int second = 13; second <= 72; ++second) rates.look(begun + second * 1s, paused, false);
    CHECK(rates.told().delivered == 100.0);
    rates.look(begun + 73s, after(13), false);  // the session was resumed just before this look
    rates.look(begun + 74s, after(14), false);
  }
  CHECK(rates.told().delivered == 100.0);
  CHECK(rates.told().loaded.at(1) == 50.0);
}

TEST_CASE("the time until a worker is ready does not lower the rates") {
  run_rates rates(begun);
  session_status s = after(0);
  for (worker_status& w : s.workers) w.state = child_state::starting;
  for (int second = 1; second <= 3; ++second) rates.look(begun + second * 1s, s, false);
  CHECK_FALSE(rates.told().delivered);
  rates.look(begun + 4s, after(0), false);
  rates.look(begun + 5s, after(1), false);
  CHECK(rates.told().delivered == 50.0);
}
