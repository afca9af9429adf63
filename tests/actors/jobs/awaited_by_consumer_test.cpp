#include "actors/jobs/awaited_by_consumer.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

constexpr steady_time start = steady_time{} + 1h;

/// A batch that a worker loaded for 1 s, 800 ms of which went to sample 37.
slow_batch batch_of(std::uint64_t job) {
  return {job, 1, 1s, 800ms, {{37, "sample 37", 810ms}}};
}

}  // namespace

TEST_CASE("a slow sample gets the same share of the wait for its batch as it had of the batch's loading time") {
  jobs::awaited_by_consumer waits;
  CHECK(waits.wait(5, {}, start));
  CHECK_FALSE(waits.wait(5, {batch_step::sample, 3, "sample 37"}, start + 1s));
  CHECK(waits.came(start + 3s));
  waits.was_slow(batch_of(5));
  REQUIRE(waits.slow_loads().size() == 1);
  const slow_load one = waits.slow_loads()[0];
  CHECK(one.from == start + 2s);  // the worker did not load the batch before that
  CHECK(one.to == start + 3s);
  CHECK(one.weight == Catch::Approx(0.8));
  CHECK(one.sample.name == "sample 37");
}

TEST_CASE("a slow sample that nobody waited for is not charged with the wait for another batch") {
  jobs::awaited_by_consumer waits;
  waits.wait(5, {}, start);
  waits.came(start + 3s);
  waits.was_slow(batch_of(6));
  REQUIRE(waits.slow_loads().size() == 1);
  CHECK(waits.slow_loads()[0].from == waits.slow_loads()[0].to);
}

TEST_CASE("a wait for a batch whose worker died is told while it lasts, and with a number once it is over") {
  jobs::awaited_by_consumer waits;
  waits.wait(5, {}, start);
  CHECK(waits.lost_waits(start + 1s).empty());
  waits.lost(5, start - 1s);
  const auto now = waits.lost_waits(start + 2s);
  REQUIRE(now.size() == 1);
  CHECK(now[0].number == 0);
  CHECK(now[0].from == start);
  CHECK(now[0].to == start + 2s);
  waits.leased(5, start + 3s);
  waits.wait(5, {}, start + 4s);
  waits.came(start + 5s);
  const auto then = waits.lost_waits(start + 6s);
  REQUIRE(then.size() == 1);
  CHECK(then[0].number == 1);
  CHECK(then[0].from == start);
  CHECK(then[0].to == start + 3s);
  waits.came(start + 7s);
  CHECK(waits.lost_waits(start + 8s).size() == 1);
}

TEST_CASE("if batches are taken as they come, a wait belongs to the batch that ends it, and until then to none") {
  jobs::awaited_by_consumer waits;
  batch_mark any;
  any.in_order = false;
  waits.lost(5, start - 1s);
  waits.wait(5, any, start);
  CHECK(waits.lost_waits(start + 1s).empty());
  waits.wait(6, any, start + 2s);
  waits.came(start + 2s);
  CHECK(waits.lost_waits(start + 2s).empty());
  waits.wait(7, any, start + 3s);
  waits.leased(5, start + 4s);
  waits.wait(5, any, start + 5s);
  waits.came(start + 5s);
  REQUIRE(waits.lost_waits(start + 5s).size() == 1);
  CHECK(waits.lost_waits(start + 5s)[0].from == start + 3s);
  CHECK(waits.lost_waits(start + 5s)[0].to == start + 4s);
}

TEST_CASE("the latest batches with slow samples are kept together with their numbers") {
  jobs::awaited_by_consumer waits;
  for (std::uint64_t i = 0; i < 1000; ++i) waits.was_slow(batch_of(i));
  CHECK(waits.slow_loads().size() == 64);
  CHECK(waits.slow_loads().back().number == 1000);
}
