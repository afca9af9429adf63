#include "tests/random_seed.hpp"
#include "tests/runtime/telemetry/made_up_pipeline.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>

namespace penstock::telemetry {
namespace {

using namespace std::chrono_literals;
using testing::made_up_load;
using testing::made_up_pipeline;
using testing::pipeline_plan;

auto always(nanoseconds time) {
  return [time](std::uint64_t) { return time; };
}
auto loads(nanoseconds busy, nanoseconds reading = 0ns) {
  return [=](std::uint32_t, std::uint64_t) { return made_up_load{busy, reading}; };
}

/// Every stage takes 2 ms, and the consumer takes no time.
pipeline_plan quick() {
  pipeline_plan p;
  p.load = loads(2ms);
  p.copy = always(200us);
  p.convert = always(100us);
  p.consume = always(0ns);
  return p;
}

limit_reading after_12_s(pipeline_plan plan) {
  return made_up_pipeline(std::move(plan)).run(0ms, 12s);
}

double sum_of(const limit_reading& r) {
  return std::accumulate(r.share.begin(), r.share.end(), 0.0);
}

/// A batch that is demanded at the beginning, and taken 1 s later.
batch_passage first_batch() {
  batch_passage first;
  first.incarnation = 1;
  first.samples = 4;
  first.demanded = made_up_pipeline::start_ns;
  for (nanoseconds::rep& stage : first.at) stage = made_up_pipeline::start_ns + nanoseconds(1s).count();
  return first;
}

}  // namespace

TEST_CASE("if workers use their cores, decoding is the limit") {
  pipeline_plan p = quick();
  p.load = loads(40ms);
  p.consume = always(3ms);
  const limit_reading r = after_12_s(p);
  CHECK(r.largest() == limit::decode);
  CHECK(r.of(limit::decode) > 0.6);
  CHECK(r.of(limit::consumer) > 0.2);
  CHECK(r.cpu > 0.95);
  CHECK(r.busy > 0.95);
  CHECK(sum_of(r) <= 1 + 1e-9);
}

TEST_CASE("if workers read most of the time, storage is the limit") {
  pipeline_plan p = quick();
  p.load = loads(40ms, 32ms);
  const limit_reading r = after_12_s(p);
  CHECK(r.largest() == limit::storage);
  CHECK(r.of(limit::storage) > 0.6);
  CHECK(r.of(limit::decode) < 0.25);
}

TEST_CASE(
    "a custom dataset times no reads, so its time counts as its own work, even if its thread does not run") {
  pipeline_plan p = quick();
  p.load = loads(40ms, 32ms);
  made_up_pipeline pipeline(p);
  stream_limits limits;
  limit_reading r;
  for (nanoseconds t = 0ms; t <= 12s; t += 200ms) {
    limit_facts f = pipeline.facts_at(t);
    for (batch_passage& b : f.passages) b.reading_ns = 0;
    for (worker_look& w : f.workers) w.reads = false;
    r = limits.look(made_up_pipeline::start() + t, f);
  }
  CHECK(r.largest() == limit::decode);
  CHECK(r.of(limit::storage) == 0);
}

TEST_CASE("a slow copy makes the wire the limit, and a slow conversion makes converting the limit, in both placements") {
  for (const bool elsewhere : {false, true}) {
    pipeline_plan p = quick();
    p.owner_is_elsewhere = elsewhere;
    p.copy = always(20ms);
    CHECK(after_12_s(p).largest() == limit::wire);
    p.copy = always(200us);
    p.convert = always(20ms);
    CHECK(after_12_s(p).largest() == limit::convert);
  }
}

TEST_CASE("a consumer that works on its batches is the limit, and waits are below the noise") {
  pipeline_plan p = quick();
  p.consume = always(50ms);
  const limit_reading r = after_12_s(p);
  CHECK(r.largest() == limit::consumer);
  CHECK(r.of(limit::consumer) > 0.9);
  CHECK(r.held < 0.05);
}

TEST_CASE("the beginning of a short run is measured separately, and after it the consumer is the limit") {
  pipeline_plan p = quick();
  p.ready_after = 1500ms;
  p.consume = always(20ms);
  const limit_reading r = made_up_pipeline(p).run(0ms, 4s);
  CHECK(r.of(limit::start) == Catch::Approx(0.375).margin(0.01));
  CHECK(r.beginning == Catch::Approx(0.375).margin(0.01));
  REQUIRE(r.after_beginning());
  CHECK(r.after_beginning()->largest() == limit::consumer);
  CHECK(r.after_beginning()->of(limit::start) < 0.01);
  CHECK(r.after_beginning()->seconds == Catch::Approx(2.5).margin(0.05));
  CHECK_FALSE(made_up_pipeline(p).run(0ms, 1s).after_beginning());     // no batch yet
  CHECK_FALSE(made_up_pipeline(p).run(0ms, 1600ms).after_beginning());  // nearly all of this time is the beginning
  CHECK_FALSE(made_up_pipeline(p).run(0ms, 12s).after_beginning());    // the beginning was more than 10 s ago
}

TEST_CASE(
    "a consumer that takes batches in bursts is the limit, although the slots run empty in each burst") {
  pipeline_plan p = quick();
  p.workers = 2;
  p.load = loads(20ms);
  p.consume = [](std::uint64_t batch) { return batch % 40 == 39 ? nanoseconds(1500ms) : nanoseconds(0ms); };
  for (const bool elsewhere : {false, true}) {
    p.owner_is_elsewhere = elsewhere;
    const limit_reading r = after_12_s(p);
    CHECK(r.waited() > 0.15);
    CHECK(r.of(limit::order) < 0.05);
    CHECK(r.of(limit::consumer) > 0.7);
    CHECK(r.spare > 0.5);
    CHECK(r.largest() == limit::consumer);
  }
}

TEST_CASE("the time of a suspended or replaced owner is not attributed to any batch") {
  for (const bool frozen : {false, true}) {
    pipeline_plan p = quick();
    p.owner_is_elsewhere = true;
    p.load = loads(20ms);
    p.consume = [](std::uint64_t batch) { return nanoseconds(batch == 200 ? 6s : 0s); };  // from 1 s on
    made_up_pipeline pipeline(p);
    stream_limits limits;
    limit_reading r;
    for (nanoseconds t = 0ms; t <= 9s; t += 200ms) {
      limit_facts f = pipeline.facts_at(t);
      f.device_ready = frozen || t < 1200ms || t > 6s;
      f.owner_is_frozen = frozen && t >= 1200ms && t <= 6s;
      r = limits.look(made_up_pipeline::start() + t, f);
    }
    CHECK(r.largest() == limit::start);
    CHECK((frozen ? r.owner_frozen : r.owner_down) > 0.5);
    CHECK(r.of(limit::order) < 0.05);
    CHECK_FALSE(r.stall);
  }
}

TEST_CASE("if a batch kills one worker after another, the time of each counts from its own lease") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.waits_since = f.begun;
  f.workers = {{0, 1, true, false, true, false, {}, {}}, {1, 1, true, false, true, false, {}, {}}};
  batch_passage b;
  b.position = 1;
  b.incarnation = 1;
  b.samples = 4;
  stream_limits limits;
  limit_reading r;
  const auto look_until = [&](nanoseconds from, nanoseconds until) {
    for (nanoseconds t = from; t <= until; t += 200ms) r = limits.look(f.begun + t, f);
  };
  const auto lease = [&](std::uint32_t worker, nanoseconds since) {
    b.worker = worker;
    b.at[0] = made_up_pipeline::start_ns + since.count();
    f.passages = {b};
  };
  lease(1, 0ms);
  look_until(200ms, 20s);
  f.workers[1].ready = false;  // worker/1 has died
  lease(0, 20200ms);
  look_until(20200ms, 50s);
  f.workers[0].ready = false;  // worker/0 has died, too
  look_until(50200ms, 62s);
  REQUIRE(r.lost);
  CHECK(r.lost->worker == 0);
  f.sacrificial = {2, 1, true, false, true, false, {}, {}};
  lease(2, 62200ms);  // the sacrificial worker tries the batch
  look_until(62200ms, 75s);
  REQUIRE(r.lost);
  CHECK(r.lost->worker == 0);
  CHECK(r.lost->share > 0.9);
}

TEST_CASE(
    "time lost on a batch when its worker dies is attributed to that worker, even after the batch is leased again") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.waits_since = f.begun;
  f.workers = {{0, 1, true, false, true, false, {}, {}}, {1, 1, true, false, false, false, {}, {}}};
  const auto ns = [&](nanoseconds since) { return made_up_pipeline::start_ns + since.count(); };
  batch_passage first;
  first.incarnation = 1;
  first.samples = 4;
  first.demanded = ns(0ms);
  for (nanoseconds::rep& stage : first.at) stage = ns(100ms);
  batch_passage b;
  b.position = 1;
  b.incarnation = 1;
  b.samples = 4;
  b.at[0] = ns(100ms);
  stream_limits limits;
  limit_reading r;
  const auto look_until = [&](nanoseconds from, nanoseconds until) {
    for (nanoseconds t = from; t <= until; t += 200ms) r = limits.look(f.begun + t, f);
  };
  f.passages = {first, b};
  look_until(200ms, 1s);
  f.passages = {b};
  f.workers[0] = {0, 1, false, true, false, false, {}, {}};  // the worker has died
  look_until(1200ms, 4s);
  REQUIRE(r.lost.has_value());
  CHECK(r.lost->worker == 0);
  CHECK(r.of(limit::start) > 0.6);
  b.worker = 1;  // leased again
  b.at[0] = ns(4s);
  f.workers[0] = {0, 2, true, false, false, false, {}, {}};
  f.workers[1].busy = true;
  f.passages = {b};
  look_until(4200ms, 4400ms);
  REQUIRE(r.lost.has_value());
  CHECK(r.lost->worker == 0);
  for (std::size_t i = 1; i < batch_stages; ++i) b.at[i] = ns(4500ms);
  b.demanded = ns(100ms);
  b.number = 2;
  f.passages = {b};
  f.waits_since = f.begun + 4500ms;
  look_until(4600ms, 4600ms);
  REQUIRE(r.lost.has_value());
  CHECK(r.lost->worker == 0);
  CHECK(r.lost->share > 0.8);
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(3.9).margin(0.01));
  f.passages = {};
  for (nanoseconds t = 4800ms; t <= 16s; t += 200ms) {
    look_until(t, t);
    if (r.lost) CHECK(r.lost->share <= r.waited() + 1e-6);
  }
  CHECK_FALSE(r.lost.has_value());
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(3.9).margin(0.01));  // the sum over the whole run
}

TEST_CASE("a wait for a batch whose worker died and was replaced between two looks counts as the cost of its death") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.workers = {{0, 2, true, false, false, false, {}, {}}};
  const auto ns = [&](nanoseconds since) { return made_up_pipeline::start_ns + since.count(); };
  batch_passage first;
  first.incarnation = 1;
  first.samples = 4;
  first.number = 1;
  for (nanoseconds::rep& stage : first.at) stage = ns(10ms);
  batch_passage lost = first;
  lost.position = 1;
  lost.incarnation = 2;
  lost.number = 2;
  lost.demanded = ns(20ms);
  lost.first_leased = ns(10ms);
  lost.at[0] = ns(170ms);  // leased again
  for (std::size_t i = 1; i < batch_stages; ++i) lost.at[i] = ns(180ms);
  f.passages = {first, lost};
  stream_limits limits;
  CHECK(limits.look(f.begun + 200ms, f).lost_seconds.value_or(0) == Catch::Approx(0.15));
}

TEST_CASE("the time that workers hung on the awaited batch counts as the cost of their deaths, from the first kill to the end of the run") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.workers = {{0, 1, true, false, true, false, {}, {}}, {1, 1, true, false, true, false, {}, {}}};
  const auto ns = [&](nanoseconds since) { return made_up_pipeline::start_ns + since.count(); };
  batch_passage first;
  first.incarnation = 1;
  first.samples = 4;
  first.demanded = ns(0ms);
  for (nanoseconds::rep& stage : first.at) stage = ns(1s);
  batch_passage b;
  b.position = 1;
  b.samples = 4;
  const auto leased_to = [&](std::uint32_t worker, nanoseconds when, std::uint32_t incarnation = 1) {
    b.worker = worker;
    b.incarnation = incarnation;
    b.at[0] = ns(when);
    f.passages = {b};
  };
  stream_limits limits;
  limit_reading r;
  nanoseconds t = 1s;
  const auto look_until = [&](nanoseconds until) {
    for (; t <= until; t += 200ms) r = limits.look(f.begun + t, f);
  };
  f.waits_since = f.begun + 1s;
  leased_to(1, 1s);
  f.passages.insert(f.passages.begin(), first);
  look_until(1s);
  f.passages = {b};
  look_until(31s);
  CHECK(r.lost_seconds == 0.0);
  CHECK_FALSE(r.lost);
  f.workers[1] = {1, 2, false, true, false, false, {}, {}};  // worker/1 is killed
  look_until(32s);
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(31).margin(0.21));
  REQUIRE(r.lost);
  CHECK(r.lost->worker == 1);
  leased_to(0, 32s);
  f.workers[1] = {1, 2, true, false, false, false, {}, {}};
  look_until(62s);
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(31).margin(0.21));
  f.workers[0] = {0, 2, false, true, false, false, {}, {}};  // worker/0 is killed, too
  look_until(63s);
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(62).margin(0.21));
  REQUIRE(r.lost);
  CHECK(r.lost->worker == 0);
  CHECK(r.lost->share > 0.9);
  f.sacrificial = {64, 1, true, false, true, false, {}, {}};
  leased_to(64, 63s);  // the sample is tried alone
  look_until(93s);
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(92).margin(0.21));
  REQUIRE(r.lost);
  CHECK(r.lost->worker == 0);
  f.workers[0] = {0, 2, true, false, true, false, {}, {}};
  leased_to(0, 94s, 2);
  look_until(94s);
  SECTION("the batch is loaded") {
    for (std::size_t i = 1; i < batch_stages; ++i) b.at[i] = ns(95s);
    b.demanded = ns(1s);
    b.number = 2;
    f.passages = {b};
    f.waits_since = f.begun + 95s;
    look_until(96s);
  }
  SECTION("the run ends first") {
    f.is_over = true;
    look_until(96s);
  }
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(93).margin(0.21));
}

TEST_CASE("the time that a worker hangs on the awaited batch counts as the stalled load, even after its death and in later attempts") {
  made_up_pipeline pipeline([] {
    pipeline_plan p = quick();
    p.load = [](std::uint32_t, std::uint64_t batch) { return made_up_load{batch == 50 ? 1h : 10ms, 0ns}; };
    return p;
  }());
  stream_limits limits;
  limit_reading r;
  limit_facts f;
  nanoseconds t = 0s;
  for (; t <= 20s; t += 200ms) r = limits.look(made_up_pipeline::start() + t, f = pipeline.facts_at(t));
  const auto head = std::ranges::find_if(f.passages, [](const batch_passage& b) { return b.reached() < batch_stage::loaded; });
  REQUIRE(head != f.passages.end());
  CHECK(r.of(limit::order) > 0.9);
  const auto look_until = [&](nanoseconds until) {
    for (; t <= until; t += 200ms) r = limits.look(made_up_pipeline::start() + t, f);
    CHECK(r.of(limit::order) > 0.85);
    CHECK(r.of(limit::start) < 0.15);
    CHECK(r.lost_seconds.value_or(0) > 0);
  };
  const auto lease_to = [&](std::uint32_t worker, std::uint32_t incarnation) {
    head->worker = worker;
    head->incarnation = incarnation;
    head->at[0] = made_up_pipeline::start_ns + t.count();
  };
  const std::uint32_t first = head->worker;
  const std::uint32_t second = (first + 1) % 4;
  f.workers[first].ready = false;  // the worker was killed
  look_until(20600ms);
  f.workers[first] = {first, 2, true, false, false, false, {}, {}};
  lease_to(second, 1);
  look_until(25s);  // another worker hangs at the same sample
  f.workers[second].ready = false;
  look_until(25400ms);
  f.sacrificial = {64, 1, true, false, true, false, {}, {}};
  lease_to(64, 1);
  look_until(40s);  // the sacrificial worker hangs, too
  f.sacrificial->ready = false;
  look_until(40400ms);
}

TEST_CASE("after a seek the cost of deaths keeps growing, although the wait before the seek is never settled") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.waits_since = f.begun;
  f.workers = {{0, 1, true, false, true, false, {}, {}}};
  batch_passage b;
  b.incarnation = 1;
  b.samples = 4;
  stream_limits limits;
  limit_reading r;
  const auto lose_a_batch_for = [&](nanoseconds from, nanoseconds until) {
    b.at[0] = made_up_pipeline::start_ns + from.count();
    f.passages = {b};
    for (nanoseconds t = from; t <= until; t += 200ms) {
      f.workers[0].ready = t == from;
      r = limits.look(f.begun + t, f);
    }
  };
  lose_a_batch_for(1s, 11s);
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(10).margin(0.21));
  f.seeks = 1;
  b.position = 7;
  lose_a_batch_for(12s, 15s);
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(13).margin(0.21));
}

TEST_CASE("the waits of a loader's consumer for batches whose workers died are the cost of deaths: without pauses, and no more than it waited") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.workers = {{0, 1, true, false, true, false, {}, {}}};
  f.jobs = {{.running = 2, .consumer_waited = 0ns}};
  stream_limits limits;
  limit_reading r;
  nanoseconds t = 0s;
  const auto at = [&](nanoseconds since) { return f.begun + since; };
  const auto look_until = [&](nanoseconds until, bool waits) {
    for (; t <= until; t += 200ms) {
      if (waits && !f.is_paused) *f.jobs->consumer_waited += 200ms;
      if (waits) f.jobs->lost_waits = {{0, at(1s), at(2s), at(t)}};
      r = limits.look(at(t), f);
    }
  };
  look_until(2s, false);
  CHECK(r.lost_seconds == 0.0);
  look_until(5s, true);
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(3).margin(0.01));
  f.is_paused = true;
  look_until(10s, true);
  f.is_paused = false;
  look_until(12s, true);
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(5).margin(0.41));
  f.jobs->lost_waits = {{1, at(1s), at(2s), at(12s)}};
  look_until(14s, false);
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(5).margin(0.41));
  f.jobs->lost_waits.push_back({2, at(15s), at(14s), at(16s)});  // its first lease was later than the wait
  *f.jobs->consumer_waited += 2s;
  look_until(16s, false);
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(6).margin(0.41));
  f.jobs->lost_waits.push_back({3, at(17s), at(17s), at(18s)});
  f.is_over = true;
  look_until(18s, false);  // the first look after the end
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(7).margin(0.41));
  CHECK(r.lost_seconds.value_or(0) <= std::chrono::duration<double>(*f.jobs->consumer_waited).count());
}

TEST_CASE("deaths of a worker and of the owner at the same time cost no more than the wait") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.device_ready = true;
  f.workers = {{0, 1, true, false, true, false, {}, {}}};
  const batch_passage first = first_batch();
  batch_passage b;
  b.position = 1;
  b.samples = 4;
  b.incarnation = 1;
  b.at[0] = first.at[0];
  f.passages = {first, b};
  f.waits_since = f.begun + 1s;
  stream_limits limits;
  limit_reading r;
  for (nanoseconds t = 1s; t <= 8s; t += 200ms) {
    if (t == 2s) f.workers[0] = {0, 2, false, true, false, false, {}, {}};
    if (t == 3s) f.device_ready = false;
    r = limits.look(f.begun + t, f);
    f.passages = {b};
  }
  CHECK(r.lost_seconds.value_or(0) == Catch::Approx(7).margin(0.21));
}

TEST_CASE("the time that the owner was suspended counts as the cost of its death, but not if the owner continues") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.owner_is_elsewhere = true;
  f.workers = {{0, 1, true, false, true, false, {}, {}}};
  const batch_passage first = first_batch();
  f.passages = {first};
  const bool dies = GENERATE(true, false);
  stream_limits limits;
  limit_reading r;
  for (nanoseconds t = 1s; t <= 14s; t += 200ms) {
    f.owner_is_frozen = t > 3s && t <= 13s;
    f.owner_deaths = dies && t > 13s ? 1 : 0;  // the next owner is ready before the next look
    r = limits.look(f.begun + t, f);
    f.passages = {};
    if (t <= 13s) CHECK(r.lost_seconds == 0.0);
  }
  CHECK(r.lost_seconds.value_or(-1) == Catch::Approx(dies ? 10 : 0).margin(0.21));
}

TEST_CASE("after hours without a batch, look() takes no longer than after seconds") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.workers = {{0, 1, true, false, true, false, {}, {}}};
  batch_passage b;
  b.incarnation = 1;
  b.samples = 4;
  b.at[0] = made_up_pipeline::start_ns;
  f.passages = {b};
  SECTION("the consumer waits") {
    f.waits_since = f.begun;
  }
  SECTION("the session is paused") {
    f.is_paused = true;
  }
  stream_limits limits;
  std::size_t after_seconds = 0;
  for (nanoseconds t = 0s; t <= 6h; t += 2s) {
    limits.look(f.begun + t, f);
    if (t <= 40s) after_seconds = limits.entries();
    REQUIRE(limits.entries() == after_seconds);
  }
  CHECK(after_seconds > 0);
}

TEST_CASE("if one sample stalls while other workers' batches are ready, order is the limit") {
  pipeline_plan p = quick();
  p.load = [](std::uint32_t, std::uint64_t batch) { return made_up_load{batch % 100 == 50 ? 3s : 10ms, 0ns}; };
  const limit_reading r = after_12_s(p);
  CHECK(r.largest() == limit::order);
  REQUIRE(r.stall);
  CHECK(r.stall->seconds > 2);
}

TEST_CASE("a stall in progress counts the same way before it is over") {
  pipeline_plan p = quick();
  p.load = [](std::uint32_t, std::uint64_t batch) { return made_up_load{batch == 50 ? 60s : 10ms, 0ns}; };
  const limit_reading r = after_12_s(p);
  CHECK(r.largest() == limit::order);
  CHECK(r.of(limit::order) > 0.9);
}

/// 2 of 64 samples take 2 s; all others 1 ms.
pipeline_plan two_slow_samples() {
  pipeline_plan p = quick();
  p.workers = 2;
  p.slots = 2;
  p.load = [](std::uint32_t, std::uint64_t batch) {
    if (batch % 4 == 0 || batch % 4 == 2) return made_up_load{16ms + 2s, 0ns, 2s, 5 + batch % 4, 0ns, 16ms};
    return made_up_load{16ms, 0ns, 0ns, 0, 0ns, 16ms};
  };
  return p;
}

TEST_CASE("slow samples are named, and no worker is slow because of them") {
  const limit_reading r = after_12_s(two_slow_samples());
  CHECK(r.slow_share > 0.8);
  REQUIRE(r.slow_samples.size() == 2);
  CHECK(std::set{r.slow_samples[0].sample.value(), r.slow_samples[1].sample.value()} == std::set<std::uint64_t>{5, 7});
  CHECK(r.slow_samples[0].seconds == Catch::Approx(2));
  CHECK_FALSE(r.slow);
  CHECK(r.slow_batches >= 8);  // one slow batch every second
  CHECK(r.slow_batches <= 12);
  CHECK(r.slow_seconds == Catch::Approx(10).margin(2));
  for (const limit_reading::worker_load& w : r.loads) CHECK(w.seconds_a_sample == Catch::Approx(0.001));
}

TEST_CASE("if only one worker has slow samples, and different ones each time, the worker is slow and not the samples") {
  pipeline_plan p = quick();
  p.load = [](std::uint32_t worker, std::uint64_t batch) {
    return worker == 1 ? made_up_load{120ms, 0ns, 80ms, batch} : made_up_load{20ms};
  };
  const limit_reading r = after_12_s(p);
  REQUIRE(r.slow);
  CHECK(r.slow->worker == 1);
  CHECK(r.slow_share < 0.1);
  CHECK(r.slow_batches < 20);  // counted only until the worker is known to be slow
}

TEST_CASE("the time that a worker waited for a core after a read does not count as storage") {
  pipeline_plan p = quick();
  p.load = [](std::uint32_t, std::uint64_t) { return made_up_load{40ms, 40ms, 0ns, 0, 24ms, 1ms}; };
  const limit_reading r = after_12_s(p);
  CHECK(r.of(limit::storage) == Catch::Approx(0.37).margin(0.06));
  CHECK(r.no_core == Catch::Approx(0.58).margin(0.06));
  CHECK(r.largest() == limit::decode);
  CHECK(r.loads.front().reading == Catch::Approx(0.375).margin(0.03));
}

TEST_CASE("a batch that stalls because its worker has no core does not count as order") {
  pipeline_plan p = quick();
  p.consume = always(4ms);
  p.load = [](std::uint32_t, std::uint64_t batch) {
    return batch % 100 == 50 ? made_up_load{3s, 0ns, 0ns, 0, 2900ms, 20ms} : made_up_load{10ms};
  };
  const limit_reading r = after_12_s(p);
  CHECK(r.of(limit::order) < 0.2);
  CHECK(r.no_core > 0.5);
  CHECK(r.largest() == limit::decode);
}

TEST_CASE("a worker slower than its peers makes decoding the limit, and is named") {
  pipeline_plan p = quick();
  p.load = [](std::uint32_t worker, std::uint64_t) { return made_up_load{worker == 2 ? 120ms : 10ms, 0ns}; };
  const limit_reading r = after_12_s(p);
  CHECK(r.largest() == limit::decode);
  REQUIRE(r.slow);
  CHECK(r.slow->worker == 2);
  CHECK(r.slow->factor > 8);
}

TEST_CASE("a worker's slowness is the ratio of the shown times, and a new process is not compared at once") {
  pipeline_plan p = quick();
  p.load = [](std::uint32_t worker, std::uint64_t batch) {
    return made_up_load{worker == 2 ? (batch < 500 ? 120ms : 60ms) : 10ms, 0ns};
  };
  made_up_pipeline pipeline(p);
  stream_limits limits;
  limit_reading r;
  nanoseconds t = 0ms;
  const auto look = [&](std::uint32_t incarnation) {
    limit_facts f = pipeline.facts_at(t);
    f.workers[2].incarnation = incarnation;
    r = limits.look(made_up_pipeline::start() + t, f);
    t += 200ms;
  };
  while (t <= 20s) look(1);
  REQUIRE(r.slow);
  const auto of = [&](std::uint32_t worker) { return std::ranges::find(r.loads, worker, &limit_reading::worker_load::worker)->seconds_a_sample; };
  CHECK(r.slow->factor == Catch::Approx(of(2) / of(1)));
  look(2);
  CHECK_FALSE(r.slow);
}

TEST_CASE("a worker is not slow by itself if others keep it from its core") {
  for (const double starved : {0.9, 0.5}) {
    pipeline_plan p = quick();
    p.load = [](std::uint32_t worker, std::uint64_t) { return made_up_load{worker == 2 ? 120ms : 10ms, 0ns}; };
    made_up_pipeline pipeline(p);
    stream_limits limits;
    limit_reading r;
    for (nanoseconds t = 0ms; t <= 12s; t += 200ms) {
      limit_facts f = pipeline.facts_at(t);
      f.workers[2].core_wait = std::chrono::duration_cast<nanoseconds>(t * starved);
      r = limits.look(made_up_pipeline::start() + t, f);
    }
    CHECK(r.largest() == limit::decode);
    REQUIRE(r.slow);
    CHECK(r.slow->worker == 2);
    CHECK((r.slow->core_wait > 0.8) == (starved > 0.8));  // half of the time does not explain a load that takes twelve times as long
  }
}

TEST_CASE(
    "too few slots make order the limit, because a slot being copied loads no batch and uneven batches wait") {
  pipeline_plan p = quick();
  p.workers = 1;
  p.slots = 1;
  p.load = loads(10ms);
  p.copy = always(25ms);
  CHECK(after_12_s(p).largest() == limit::order);
  p = quick();
  p.slots = 1;
  p.workers = 8;
  std::mt19937_64 random(7);
  p.load = [&](std::uint32_t, std::uint64_t) { return made_up_load{random() % 8 == 0 ? 36ms : 3ms, 0ns}; };
  CHECK(after_12_s(p).largest() == limit::order);
}

TEST_CASE("until workers are ready the start is the limit, and it leaves the window after 10 s") {
  pipeline_plan p = quick();
  p.ready_after = 6s;
  p.consume = always(20ms);
  made_up_pipeline pipeline(p);
  CHECK(pipeline.run(0ms, 5s).of(limit::start) > 0.95);
  CHECK(pipeline.run(5200ms, 7s).largest() == limit::start);
  const limit_reading later = pipeline.run(7200ms, 17s);
  CHECK(later.of(limit::start) < 0.01);
  CHECK(later.largest() == limit::consumer);
}

TEST_CASE("a consumer that requests a batch while it holds all buffers is the limit") {
  pipeline_plan p = quick();
  p.consume = always(10ms);
  made_up_pipeline pipeline(p);
  stream_limits limits;
  limit_reading r;
  for (nanoseconds t = 0ms; t <= 12s; t += 200ms) {
    limit_facts f = pipeline.facts_at(t);
    for (batch_passage& b : f.passages) {  // the consumer requests a batch at once, but must release a buffer before it gets one
      if (b.demanded == 0) continue;
      b.demanded = b.at[7] - 9'000'000;
      b.at[3] = b.at[7] - 9'500'000;
      b.at[2] = std::min(b.at[2], b.at[3]);
      b.at[4] = b.at[7] - 200'000;
      b.at[5] = b.at[6] = b.at[7] - 100'000;
    }
    r = limits.look(made_up_pipeline::start() + t, f);
  }
  CHECK(r.largest() == limit::consumer);
  CHECK(r.held > 0.5);
}

TEST_CASE("no time is attributed before the first demand, while paused, or after the end") {
  stream_limits limits;
  limit_facts f;
  CHECK(sum_of(limits.look(made_up_pipeline::start(), f)) == 0);
  f.begun = made_up_pipeline::start();
  f.workers = {{0, 1, false, true, false, false, {}, {}}};
  f.waits_since = f.begun;
  f.is_paused = true;
  CHECK(sum_of(limits.look(f.begun + 2s, f)) == 0);
  f.is_paused = false;
  f.is_over = true;
  CHECK(sum_of(limits.look(f.begun + 3s, f)) == 0);
  CHECK(limits.look(f.begun + 4s, f).largest() == std::nullopt);
}

TEST_CASE("a pause counts towards no limit and no death, neither while it lasts nor after it") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.workers = {{0, 1, true, false, false, false, {}, {}}, {1, 1, true, false, false, false, {}, {}}};
  const auto ns = [](nanoseconds since) { return made_up_pipeline::start_ns + since.count(); };
  batch_passage first;
  first.incarnation = 1;
  first.samples = 4;
  first.demanded = ns(0ms);
  for (nanoseconds::rep& stage : first.at) stage = ns(1ms);
  batch_passage b;
  b.position = 1;
  b.incarnation = 1;
  b.samples = 4;
  stream_limits limits;
  limit_reading r;
  nanoseconds t = 200ms;
  const auto look_until = [&](nanoseconds until) {
    for (; t <= until; t += 200ms) r = limits.look(f.begun + t, f);
  };
  f.passages = {first};
  look_until(2s);
  f.passages = {};
  f.waits_since = f.begun + 2s;
  bool dies = false;
  SECTION("the next batch is not leased before the end of the pause") {}
  SECTION("the next batch's worker dies in the pause") {
    b.at[0] = ns(2s);
    f.passages = {b};
    dies = true;
  }
  f.is_paused = true;
  look_until(5s);
  f.workers[0].ready = !dies;
  look_until(10s);
  CHECK(r.waited() < 0.001);
  f.is_paused = false;
  b.worker = 1;
  b.at[0] = ns(10s);
  f.workers[1].busy = true;
  f.passages = {b};
  look_until(10400ms);
  CHECK(r.of(limit::start) < 0.01);
  b.at[1] = ns(10s);
  for (std::size_t i = 2; i < batch_stages; ++i) b.at[i] = ns(10500ms);
  b.demanded = ns(2s);
  b.number = 2;
  f.passages = {b};
  f.waits_since = f.begun + 10500ms;
  look_until(10600ms);
  CHECK(r.of(limit::start) < 0.01);
  CHECK(r.of(limit::decode) > 0.02);  // the load after the pause counts
  CHECK(r.lost_seconds.value_or(0) < 0.01);
}

TEST_CASE("a data loader's wait for a batch during a pause counts towards no limit") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.jobs = limited_jobs{1, 0, false, false, 0ns};
  f.workers = {{0, 1, true, false, false, false, {}, {}}};
  stream_limits limits;
  limit_reading r;
  for (nanoseconds t = 0ms; t <= 8s; t += 200ms) {
    f.is_paused = t >= 1s && t <= 6s;
    r = limits.look(f.begun + t, f);
    if (f.is_paused) *f.jobs->consumer_waited += 200ms;
  }
  CHECK(r.waited() == 0);
  CHECK(r.of(limit::consumer) == Catch::Approx(2.6 / 8).margin(0.03));
}

TEST_CASE("time during which the program was suspended does not count") {
  pipeline_plan p = quick();
  p.load = loads(40ms);
  made_up_pipeline pipeline(p);
  stream_limits limits;
  for (nanoseconds t = 0ms; t <= 12s; t += 200ms) limits.look(made_up_pipeline::start() + t, pipeline.facts_at(t));
  limit_facts f = pipeline.facts_at(12s);
  f.waits_since = made_up_pipeline::start() + 12s;
  CHECK(sum_of(limits.look(made_up_pipeline::start() + 72s, f)) == 0);
  // Waiting after the suspension counts.
  const limit_reading r = limits.look(made_up_pipeline::start() + 72s + 200ms, f);
  CHECK(r.seconds < 0.3);
  CHECK(sum_of(r) <= 1 + 1e-9);
  // A run that ends right after a suspension keeps the earlier reading.
  f.is_over = true;
  CHECK(limits.look(made_up_pipeline::start() + 90s, f).seconds < 0.3);
}

TEST_CASE("the reading of a finished run remains that of its last 10 s") {
  made_up_pipeline pipeline([] {
    pipeline_plan p = quick();
    p.consume = always(10ms);
    return p;
  }());
  stream_limits limits;
  for (nanoseconds t = 0ms; t <= 12s; t += 200ms) limits.look(made_up_pipeline::start() + t, pipeline.facts_at(t));
  limit_facts f = pipeline.facts_at(12s);
  f.is_over = true;
  const limit_reading first = limits.look(made_up_pipeline::start() + 12200ms, f);
  CHECK(first.largest() == limit::consumer);
  const limit_reading later = limits.look(made_up_pipeline::start() + 40s, f);
  CHECK(later.largest() == limit::consumer);
  CHECK(later.share == first.share);
  f.is_over = false;  // after a seek the run continues
  CHECK(limits.look(made_up_pipeline::start() + 60s, f).of(limit::consumer) != first.of(limit::consumer));
}

TEST_CASE("a run that is stopped while it is stuck keeps its limit") {
  pipeline_plan p = quick();
  p.load = [](std::uint32_t, std::uint64_t batch) { return made_up_load{batch == 50 ? 60s : 10ms, 0ns}; };
  made_up_pipeline pipeline(p);
  stream_limits limits;
  for (nanoseconds t = 0ms; t <= 20s; t += 200ms) limits.look(made_up_pipeline::start() + t, pipeline.facts_at(t));
  limit_facts f = pipeline.facts_at(20s);
  f.is_over = true;
  const limit_reading r = limits.look(made_up_pipeline::start() + 20200ms, f);
  CHECK(r.largest() == limit::order);
  CHECK(r.of(limit::order) > 0.9);
}

TEST_CASE("a pool's time is attributed to its functions, its callers or its start") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.jobs = limited_jobs{5, 2, false, false};
  const auto run = [&](bool ready, int busy, nanoseconds cpu_a_look, nanoseconds core_wait = 0ns) {
    stream_limits limits;
    limit_reading r;
    f.workers = {{0, 1, ready, !ready, busy > 0, false, {}, {}}, {1, 1, ready, !ready, busy > 1, false, {}, {}}};
    for (nanoseconds t = 0ms; t <= 12s; t += 200ms) {
      r = limits.look(f.begun + t, f);
      for (worker_look& w : f.workers) {
        if (w.busy) w.cpu += cpu_a_look;
        if (w.busy) w.core_wait += core_wait;
      }
    }
    CHECK(sum_of(r) <= 1 + 1e-9);
    return r.largest();
  };
  CHECK(run(true, 2, 195ms) == limit::decode);
  CHECK(run(true, 2, 100ms, 95ms) == limit::decode);
  CHECK(run(true, 2, 10ms) == limit::decode);  // whatever the jobs wait for
  CHECK(run(false, 0, 0ms) == limit::start);
  CHECK(run(true, 0, 0ms) == limit::order);
  f.jobs = limited_jobs{0, 1, false, false};
  CHECK(run(true, 1, 30ms) == limit::decode);
  f.jobs = limited_jobs{0, 0, false, false};
  CHECK(run(true, 0, 0ms) == limit::consumer);
  f.jobs = limited_jobs{9, 2, true, true};
  CHECK(run(true, 0, 0ms) == limit::consumer);
}

TEST_CASE(
    "a data loader's time is attributed to its consumer unless that waits, and otherwise to its workers") {
  const auto run = [](nanoseconds waits_a_look, bool busy, nanoseconds cpu_a_look) {
    limit_facts f;
    f.begun = made_up_pipeline::start();
    f.jobs = limited_jobs{0, 2, false, false, 0ns};
    f.workers = {{0, 1, true, false, busy, false, {}, {}}, {1, 1, true, false, false, false, {}, {}}};
    stream_limits limits;
    limit_reading r;
    for (nanoseconds t = 0ms; t <= 12s; t += 200ms) {
      r = limits.look(f.begun + t, f);
      *f.jobs->consumer_waited += waits_a_look;
      f.workers[0].cpu += cpu_a_look;
    }
    CHECK(sum_of(r) <= 1 + 1e-9);
    return r;
  };
  CHECK(run(0ms, false, 0ms).of(limit::consumer) > 0.95);
  CHECK(run(0ms, true, 190ms).largest() == limit::consumer);
  CHECK(run(200ms, true, 190ms).of(limit::decode) > 0.9);
  CHECK(run(200ms, true, 5ms).of(limit::decode) > 0.9);
  CHECK(run(200ms, false, 0ms).of(limit::order) > 0.95);
  const limit_reading half = run(100ms, true, 190ms);
  CHECK(half.of(limit::consumer) == Catch::Approx(0.5).margin(0.03));
  CHECK(half.waited() == Catch::Approx(0.5).margin(0.03));
}

TEST_CASE("a data loader's waits for slow samples count once, and only as far as the samples were slow") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.jobs = limited_jobs{0, 2, false, false, 0ns};
  f.jobs->any_ended = true;
  f.workers = {{0, 1, true, false, true, false, {}, {}}};
  stream_limits limits;
  limit_reading r;
  for (nanoseconds t = 0ms; t <= 10s; t += 200ms) {
    if (t == 4s) f.jobs->slow_loads.push_back({1, 0, {37, "sample 37", 1800ms}, f.begun + 2s, f.begun + 4s, 0.9});
    if (t == 5s) f.jobs->slow_loads.push_back({2, 0, {9, "sample 9", 300ms}, f.begun + 5s, f.begun + 5s, 0.9});  // no caller waited for this batch
    r = limits.look(f.begun + t, f);
    *f.jobs->consumer_waited += 100ms;
  }
  CHECK(r.slow_share == Catch::Approx(0.18).margin(0.01));
  CHECK(r.slow_batches == 2);
  CHECK(r.slow_seconds == Catch::Approx(1.8).margin(0.01));
  REQUIRE(r.slow_samples.size() == 1);
  CHECK(r.slow_samples[0].name == "sample 37");
  CHECK(r.slow_samples[0].seconds == Catch::Approx(1.8));
  CHECK(sum_of(r) <= 1 + 1e-9);
}

TEST_CASE("the death of a worker after hours of work does not change the shares and figures of the others") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.jobs = limited_jobs{5, 2, false, false};
  f.workers = {{0, 1, true, false, true, false, 2h, 1h}, {1, 1, true, false, true, false, {}, {}}};
  stream_limits limits;
  limit_reading r;
  for (nanoseconds t = 0ms; t <= 5s; t += 200ms) {
    if (t == 4s)
      f.workers[0].cpu = f.workers[0].core_wait = 0ns;  // the worker's thread is gone, which was not noticed yet
    r = limits.look(f.begun + t, f);
    for (worker_look& w : f.workers) w.cpu += 195ms;
  }
  CHECK(r.largest() == limit::decode);
  CHECK(r.cpu > 0.8);
  CHECK(r.core_wait >= 0);
  for (const double share : r.share) CHECK(share >= 0);
}

TEST_CASE("batches from before a seek do not count as ready behind a stalled head") {
  limit_facts f;
  f.begun = made_up_pipeline::start();
  f.workers = {{0, 1, true, false, true, false, {}, {}}, {1, 1, true, false, true, false, {}, {}}};
  f.slots_per_worker = 4;
  stream_limits limits;
  const auto batch = [](stream_position position, nanoseconds leased, nanoseconds load) {
    batch_passage b;
    b.position = position;
    b.incarnation = 1;
    b.samples = 1;
    const std::int64_t from = made_up_pipeline::start_ns + leased.count();
    const std::int64_t to = from + load.count();
    b.at = {from, from, to, to, to, to, to, to, to};
    b.demanded = from;
    return b;
  };
  const auto look = [&](nanoseconds at, std::vector<batch_passage> passages) {
    f.passages = std::move(passages);
    return limits.look(made_up_pipeline::start() + at, f);
  };
  std::vector<batch_passage> before;
  for (int i = 0; i < 10; ++i) before.push_back(batch(100 + static_cast<stream_position>(i), i * 10ms, 10ms));
  look(200ms, before);
  look(400ms, {batch(5, 300ms, 10ms)});
  const limit_reading r = look(4s, {batch(6, 410ms, 3s)});
  CHECK_FALSE(r.stall);
  CHECK(r.of(limit::order) < 0.01);
}

namespace {

/// All workers run on hosts. Their batches are in transit for the share `receiving` of the time.
limit_reading with_hosts(pipeline_plan plan, double receiving, bool busy) {
  made_up_pipeline pipeline(std::move(plan));
  stream_limits limits;
  limit_reading r;
  for (nanoseconds t = 0ms; t <= 12s; t += 200ms) {
    limit_facts f = pipeline.facts_at(t);
    for (worker_look& w : f.workers) {
      w.remote = true;
      w.busy = busy;
      w.receiving = nanoseconds(static_cast<std::int64_t>(static_cast<double>(t.count()) * receiving));
    }
    r = limits.look(made_up_pipeline::start() + t, f);
  }
  return r;
}

}  // namespace

TEST_CASE("if batches are in transit from hosts while the workers idle, the link is the limit") {
  pipeline_plan p = quick();
  p.load = loads(40ms);
  const limit_reading slow = with_hosts(p, 0.95, false);
  CHECK(slow.largest() == limit::wire);
  CHECK(slow.link > 0.6);
  CHECK(slow.remote == 4);
  const limit_reading working = with_hosts(p, 0.9, true);
  CHECK(working.largest() == limit::decode);
  CHECK(working.link < 0.05);
  CHECK(working.working > 3.5);
  CHECK(with_hosts(p, 0.1, false).link < 0.05);
}

// Random pipelines with one planted limit: its stage takes more than six times as long as any other.
TEST_CASE("the planted limit of a random pipeline is named, and the shares never exceed the time") {
  const std::uint64_t seed = testing::seed_of_this_run("random pipelines");
  std::mt19937_64 random(seed);
  const auto between = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
  for (int round = 0; round < 60; ++round) {
    pipeline_plan p;
    p.workers = static_cast<std::uint32_t>(between(1, 8));
    p.slots = static_cast<std::uint32_t>(between(2, 6));
    p.buffers = static_cast<std::uint32_t>(between(2, 6));
    p.owner_is_elsewhere = random() % 2 == 0;
    const nanoseconds slow = std::chrono::microseconds(between(5'000, 60'000));
    const auto quick_part = [&] { return slow / static_cast<int>(between(8, 30)); };
    const auto planted = std::array{limit::storage, limit::decode, limit::wire, limit::convert,
                                    limit::consumer}[static_cast<std::size_t>(between(0, 4))];
    const bool loads_slowly = planted == limit::storage || planted == limit::decode;
    const nanoseconds load = loads_slowly ? slow * p.workers : quick_part();
    p.load = [=, noise = std::mt19937_64(seed + static_cast<unsigned>(round))](std::uint32_t, std::uint64_t) mutable {
      const nanoseconds busy = load * (80 + noise() % 41) / 100;
      return made_up_load{busy, planted == limit::storage ? busy * 9 / 10 : busy / 10};
    };
    p.copy = always(planted == limit::wire ? slow : quick_part());
    p.convert = always(planted == limit::convert ? slow : quick_part());
    p.consume = always(planted == limit::consumer ? slow : quick_part());
    CAPTURE(round, name_of(planted), p.workers, p.slots, p.buffers, p.owner_is_elsewhere, slow.count());
    const limit_reading r = after_12_s(std::move(p));
    for (const double share : r.share) REQUIRE(share >= 0);
    REQUIRE(sum_of(r) <= 1 + 1e-9);
    REQUIRE(r.largest().has_value());
    CHECK(name_of(*r.largest()) == name_of(planted));
  }
}

}  // namespace penstock::telemetry
