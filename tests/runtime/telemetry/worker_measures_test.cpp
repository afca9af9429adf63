// What is measured about workers: their time, their pace compared with their peers, waits for cores and links.
#include "runtime/telemetry/worker_measures.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <functional>

using namespace penstock;
using namespace penstock::telemetry;
using namespace std::chrono_literals;
using Catch::Approx;

namespace {

constexpr std::int64_t second = nanoseconds(1s).count();
constexpr std::int64_t turn = nanoseconds(200ms).count();

worker_look ready(std::uint32_t id, bool busy = false) {
  worker_look w;
  w.id = id;
  w.ready = true;
  w.busy = busy;
  return w;
}

/// Looks at workers five times a second.
struct looks {
  worker_measures measures;
  std::int64_t now = second;
  std::int64_t before = 0;

  void take(const std::vector<worker_look>& workers, worker_measures::circumstances with = {}) {
    measures.look(now, before, workers, with);
    before = now;
    now += turn;
  }
  /// `at`: the workers after this much time.
  void take_for(nanoseconds time, const std::function<std::vector<worker_look>(nanoseconds)>& at, worker_measures::circumstances with = {}) {
    for (nanoseconds passed{0}; passed <= time; passed += nanoseconds(turn)) take(at(passed), with);
  }
};

/// A batch of ten samples.
batch_passage batch(std::uint32_t worker, nanoseconds load) {
  batch_passage b;
  b.worker = worker;
  b.samples = 10;
  b.at[static_cast<std::size_t>(batch_stage::leased)] = second;
  b.at[static_cast<std::size_t>(batch_stage::begun)] = second;
  b.at[static_cast<std::size_t>(batch_stage::loaded)] = second + load.count();
  return b;
}

/// A batch in which one sample took far longer than the others.
batch_passage batch_with_slow_sample(std::uint32_t worker, std::uint64_t sample) {
  batch_passage b = batch(worker, 500ms);
  b.slow_ns = nanoseconds(400ms).count();
  b.slowest = sample;
  return b;
}

}  // namespace

TEST_CASE("the times that workers worked, ran and had no core are summed over the ready ones") {
  looks l;
  l.take_for(2s, [](nanoseconds passed) {
    worker_look works = ready(0, true);
    works.cpu = passed / 2;
    works.core_wait = passed / 4;
    worker_look starts;
    starts.id = 2;
    starts.starts = true;
    starts.core_wait = passed / 2;
    return std::vector{works, ready(1), starts};
  });
  const auto time = l.measures.time();
  CHECK(time.ready == Approx(4));
  CHECK(time.busy == Approx(2));
  CHECK(time.cpu == Approx(1));
  CHECK(time.core_wait == Approx(0.5));
  CHECK(time.starting == Approx(2));
  CHECK(time.start_core_wait == Approx(1));
}

TEST_CASE("time before the last ten seconds, and time of a pause, is not counted") {
  looks l;
  const auto busy = [](nanoseconds) { return std::vector{ready(0, true)}; };
  l.take_for(30s, busy);
  CHECK(l.measures.time().ready == Approx(10).margin(0.3));
  l.take_for(30s, busy, {.is_paused = true});
  CHECK(l.measures.time().ready == 0);
  l.take_for(2s, busy);
  l.measures.forget_times();
  CHECK(l.measures.time().ready == 0);
}

TEST_CASE("a new process of a worker is not charged with the time of the one before it") {
  looks l;
  worker_look w = ready(0, true);
  w.cpu = 100s;
  l.take({w});
  w.incarnation = 1;
  w.cpu = 50ms;  // the worker's start, before this look
  l.take({w});
  CHECK(l.measures.time().cpu == 0);
  w.cpu += 100ms;
  l.take({w});
  CHECK(l.measures.time().cpu == Approx(0.1));
}

TEST_CASE("use of cores is a share of the time that the worker worked") {
  looks l;
  l.take_for(20s, [](nanoseconds passed) {
    const bool busy = passed.count() / turn % 2 == 0;
    worker_look w = ready(0, busy);
    w.cpu = passed / 4;
    w.core_wait = passed / 8;
    return std::vector{w, ready(1)};
  });
  const auto use = l.measures.core_use_of(0);
  CHECK(use.running == Approx(0.5).margin(0.06));
  CHECK(use.starved == Approx(0.25).margin(0.03));
  CHECK(l.measures.starved(0) == Approx(0.125).margin(0.01));
  CHECK(l.measures.core_use_of(1).running == 0);
  CHECK(l.measures.core_use_of(7).running == 0);
}

TEST_CASE("a wait for a core after a read does not count as reading") {
  looks l;
  l.take_for(20s, [](nanoseconds passed) {
    worker_look w = ready(0, true);
    w.cpu = passed / 2;
    w.core_wait = passed / 4;
    return std::vector{w};
  });
  CHECK(l.measures.without_core_wait(0, 0.2) == Approx(0.2));
  CHECK(l.measures.without_core_wait(0, 0.4) == Approx(0.25).margin(0.01));
  CHECK(l.measures.without_core_wait(0, 0.9) == Approx(0.65).margin(0.01));  // at most the wait for a core
}

TEST_CASE("the link holds up a remote worker if its batches are on their way for longer than it works") {
  looks l;
  l.take_for(20s, [](nanoseconds passed) {
    worker_look slow_link = ready(0, passed.count() / turn % 3 == 0);
    slow_link.receiving = passed * 8 / 10;
    worker_look slow_worker = ready(1, true);
    slow_worker.receiving = passed * 8 / 10;
    return std::vector{slow_link, slow_worker};
  });
  CHECK(l.measures.is_held_up_by_link(0));
  CHECK_FALSE(l.measures.is_held_up_by_link(1));
  CHECK_FALSE(l.measures.is_held_up_by_link(2));
}

TEST_CASE("a worker's pace is the median of its last batches") {
  worker_measures m;
  CHECK_FALSE(m.pace_of(0));
  for (const nanoseconds load : {nanoseconds(10ms), nanoseconds(20ms), nanoseconds(5s)}) {
    batch_passage b = batch(0, load);
    b.reading_ns = load.count() / 4;
    m.loaded(b);
  }
  const auto pace = m.pace_of(0);
  REQUIRE(pace);
  CHECK(pace->seconds_a_sample == Approx(0.002));
  CHECK(pace->reading == Approx(0.25));
  CHECK(pace->batches == 3);
  for (int i = 0; i < 20; ++i) m.loaded(batch(0, 100ms));
  CHECK(m.pace_of(0)->seconds_a_sample == Approx(0.01));
  CHECK(m.loads().size() == 15);
}

TEST_CASE("a worker is compared with its peers once both have loaded five batches") {
  worker_measures m;
  for (int i = 0; i < 5; ++i) {
    CHECK_FALSE(m.slowness_of(0));
    m.loaded(batch(0, 60ms));
  }
  for (int i = 0; i < 5; ++i) {
    CHECK_FALSE(m.slowness_of(0));
    m.loaded(batch(1, 20ms));
  }
  CHECK(m.slowness_of(0) == Approx(3));
  CHECK(m.slowness_of(1) == Approx(1. / 3));
}

TEST_CASE("samples that are slow on one worker only, each time another, are the worker's fault") {
  worker_measures m;
  for (std::uint64_t i = 0; i < 7; ++i) {
    CHECK_FALSE(m.loaded(batch_with_slow_sample(0, i)));
    m.loaded(batch(1, 100ms));
  }
  CHECK(m.pace_of(0)->seconds_a_sample == Approx(0.01));  // without the slow samples
  CHECK(m.loaded(batch_with_slow_sample(0, 7)));
  CHECK(m.slows_all_samples(0));
  CHECK(m.pace_of(0)->seconds_a_sample == Approx(0.05));
  SECTION("not if its peers have slow samples, too") {
    for (std::uint64_t i = 0; i < 15; ++i) m.loaded(batch_with_slow_sample(1, 100 + i));
    CHECK_FALSE(m.slows_all_samples(0));
  }
  SECTION("not if one of them is slow again") {
    m.loaded(batch_with_slow_sample(0, 3));
    CHECK_FALSE(m.slows_all_samples(0));
  }
}

TEST_CASE("idle workers count only while the consumer waits") {
  looks l;
  const auto half = [](nanoseconds) { return std::vector{ready(0, true), ready(1)}; };
  l.take_for(4s, half);
  CHECK(l.measures.idle_share() == 0);
  l.measures.consumer_waited(second, l.before);
  CHECK(l.measures.idle_share() == Approx(0.5));
  SECTION("and only if the owner of the device was there") {
    looks other;
    other.take_for(4s, half, {.owner_is_away = true});
    other.measures.consumer_waited(second, other.before);
    CHECK(other.measures.idle_share() == 0);
  }
}

TEST_CASE("time is spare if no worker worked and the consumer did not wait") {
  looks l;
  l.take_for(4s, [](nanoseconds) { return std::vector{ready(0), ready(1)}; });
  CHECK(l.measures.spare_seconds(0, 0) == Approx(4));
  CHECK(l.measures.spare_seconds(2 * second, 0) == Approx(3));
  CHECK(l.measures.spare_seconds(0, 2 * second) == Approx(1));
  l.measures.consumer_waited(second, 4 * second);
  CHECK(l.measures.spare_seconds(0, 0) == Approx(1));
  l.take_for(1s, [](nanoseconds) { return std::vector{ready(0), ready(1, true)}; });
  CHECK(l.measures.spare_seconds(0, 0) == Approx(1));
}
