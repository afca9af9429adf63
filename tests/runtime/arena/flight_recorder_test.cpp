#include "runtime/arena/flight_recorder.hpp"

#include "runtime/base/ids.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <thread>

using namespace penstock;
using namespace penstock::arena;

TEST_CASE("a flight state survives encoding in one word") {
  for (const flight_state s :
       {flight_state{}, flight_state{phase::loading, 1023, 1'048'575, generation_mask},
        flight_state{phase::checking, 1, 0, 1}, flight_state{phase::setup, 0, 77, 12345}}) {
    CHECK(unpack(pack(s)) == s);
  }
}

TEST_CASE("the session reads what the worker published last, with the sample's name") {
  auto all = flight_recorders::create(3);
  REQUIRE(all);
  auto worker = flight_writer::map(all->fd(), 2);
  REQUIRE(worker);
  worker->publish({phase::loading, 1, 17, 9}, "cats/tom.jpg");
  const auto now = all->read(2);
  CHECK(now.state == flight_state{phase::loading, 1, 17, 9});
  CHECK(now.sample_name == "cats/tom.jpg");
  CHECK(all->read(1).state == flight_state{});
}

TEST_CASE("the session reads which sample has the published name, and at which attempt") {
  auto all = flight_recorders::create(2);
  REQUIRE(all);
  auto worker = flight_writer::map(all->fd(), 0);
  REQUIRE(worker);
  worker->publish({phase::loading, 1, 17, 9}, "cats/tom.jpg", flight_sample{51, 2});
  CHECK(all->read(0).sample == flight_sample{51, 2});
  all->mirror(1, all->read(0));  // as for a worker on a loader host
  CHECK(all->read(1).sample == flight_sample{51, 2});
  worker->rest();
  CHECK_FALSE(all->read(0).sample);
  all->clear(1);
  flight_writer::map(all->fd(), 1).value().publish({phase::loading, 0, 0, 1}, "thumbnail (job 3)");
  CHECK_FALSE(all->read(1).sample);
}

TEST_CASE("a new phase keeps the sample, and rest() clears it") {
  auto all = flight_recorders::create(1);
  REQUIRE(all);
  auto worker = flight_writer::map(all->fd(), 0);
  REQUIRE(worker);
  worker->publish({phase::loading, 1, 17, 9}, "cats/tom.jpg");
  worker->publish(phase::checking);
  CHECK(all->read(0).state == flight_state{phase::checking, 1, 17, 9});
  worker->rest();
  CHECK(all->read(0).state.at == phase::idle);
  CHECK(all->read(0).sample_name.empty());
}

TEST_CASE("a job's start time stays while a newer name for its work has its own start time") {
  auto all = flight_recorders::create(1);
  REQUIRE(all);
  auto worker = flight_writer::map(all->fd(), 0);
  REQUIRE(worker);
  const steady_time noon{std::chrono::hours(12)};
  worker->publish({phase::loading, 1, 17, 9}, "batch (job 4)", nanoseconds(0), noon);
  CHECK(all->read(0).named_since == noon);
  worker->publish({phase::loading, 1, 17, 9}, "sample 37 (job 4)", nanoseconds(0), noon, noon + std::chrono::seconds(5));
  CHECK(all->read(0).since == noon);
  CHECK(all->read(0).named_since == noon + std::chrono::seconds(5));
  flight_reading elsewhere = all->read(0);
  elsewhere.named_since.reset();  // another machine does not report this time
  all->mirror(0, elsewhere);
  CHECK_FALSE(all->read(0).named_since);
  worker->rest();
  CHECK_FALSE(all->read(0).named_since);
}

TEST_CASE("a job's limit is readable while it runs, and never together with another job's state") {
  auto all = flight_recorders::create(1);
  REQUIRE(all);
  auto worker = flight_writer::map(all->fd(), 0);
  REQUIRE(worker);
  const steady_time noon{std::chrono::hours(12)};
  worker->publish({phase::loading, 1, 17, 9}, "thumbnail (job 4)", std::chrono::seconds(3), noon);
  CHECK(all->read(0).limit == std::chrono::seconds(3));
  CHECK(all->read(0).since == noon);
  worker->publish(phase::checking);
  CHECK(all->read(0).limit == nanoseconds(0));
  worker->publish({phase::loading, 1, 18, 9}, "thumbnail (job 5)");
  CHECK(all->read(0).limit == nanoseconds(0));

  // Rows 0, 2, 4 ... have a limit equal to their number; the others have none.
  std::atomic<bool> enough{false};
  std::thread writer([&] {
    for (std::uint32_t row = 0; !enough.load(std::memory_order_relaxed); row = (row + 1) & 0xffffU) {
      worker->publish({phase::loading, 0, row, 1}, "job", nanoseconds(row % 2 == 0 ? row + 1 : 0));
      if (row % 3 == 0) worker->publish(phase::checking);
    }
  });
  for (int seen = 0; seen < 10'000;) {
    const auto now = all->read(0);
    if (now.limit == nanoseconds(0)) continue;
    ++seen;
    if (now.limit == nanoseconds(now.state.row + 1)) continue;
    CHECK(now.limit == nanoseconds(now.state.row + 1));
    break;
  }
  enough = true;
  writer.join();
}

TEST_CASE("heartbeats and finished samples are counted") {
  auto all = flight_recorders::create(1);
  REQUIRE(all);
  auto worker = flight_writer::map(all->fd(), 0);
  REQUIRE(worker);
  worker->beat();
  worker->beat();
  worker->sample_done();
  CHECK(all->read(0).heartbeats == 2);
  CHECK(all->read(0).samples_done == 1);
}

TEST_CASE("the part of a name that fits is kept, however long the name is") {
  auto all = flight_recorders::create(1);
  REQUIRE(all);
  auto worker = flight_writer::map(all->fd(), 0);
  REQUIRE(worker);
  worker->publish({phase::loading, 0, 0, 1}, std::string(10'000, 'x'));
  CHECK(all->read(0).sample_name == std::string(500, 'x'));
}

TEST_CASE("a cleared recorder shows nothing of the previous incarnation") {
  auto all = flight_recorders::create(2);
  REQUIRE(all);
  auto worker = flight_writer::map(all->fd(), 1);
  REQUIRE(worker);
  worker->publish({phase::loading, 1, 2, 3}, "a");
  worker->beat();
  all->clear(1);
  CHECK(all->read(1).word == 0);
  CHECK(all->read(1).heartbeats == 0);
}

TEST_CASE("a wait in progress counts, and a finished wait counts once") {
  using namespace std::chrono_literals;
  auto all = flight_recorders::create(1);
  REQUIRE(all);
  auto owner = flight_writer::map(all->fd(), 0);
  REQUIRE(owner);
  const steady_time start = steady_time{} + 1h;
  CHECK(all->read(0).waited_until(start) == 0ns);
  owner->wait_begins(start);
  CHECK(all->read(0).waited_until(start + 8s) == 8s);
  owner->wait_ends(start + 9s);
  CHECK(all->read(0).waited_until(start + 20s) == 9s);
  owner->wait_begins(start + 20s);
  CHECK(all->read(0).waited_until(start + 21s) == 10s);
  all->clear(0);
  CHECK(all->read(0).waited_until(start + 30s) == 0ns);
}

TEST_CASE("no wait is counted twice, whenever the counter is read") {
  using namespace std::chrono_literals;
  auto all = flight_recorders::create(1);
  REQUIRE(all);
  auto owner = flight_writer::map(all->fd(), 0);
  REQUIRE(owner);
  std::atomic<bool> enough = false;
  // The worker always waits, in short waits: at `now` it has waited for at most that long.
  std::atomic<std::int64_t> now_ns = 1;
  const auto at = [](std::int64_t ns) { return steady_time(nanoseconds(ns)); };
  std::thread writer([&] {
    for (std::int64_t now = 1; !enough; ++now) {
      owner->wait_begins(at(now));
      now_ns = now + 1;
      owner->wait_ends(at(now + 1));
    }
  });
  bool once = true;
  for (int reading = 0; reading < 100'000 && once; ++reading) {
    const flight_reading seen = all->read(0);
    const std::int64_t now = now_ns;
    once = seen.waited_until(at(now)) < nanoseconds(now);
  }
  enough = true;
  writer.join();
  CHECK(once);
}
