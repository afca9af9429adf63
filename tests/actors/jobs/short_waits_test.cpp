#include "actors/jobs/short_waits.hpp"

#include <catch2/catch_test_macros.hpp>

using penstock::jobs::short_waits;

namespace {

/// How many of `waits` waits poll, if each poll ends like this.
int polls_in(short_waits& pool, int waits, bool in_time) {
  int polls = 0;
  for (int i = 0; i < waits; ++i) {
    if (!pool.next()) continue;
    ++polls;
    pool.polled(in_time);
  }
  return polls;
}

}  // namespace

TEST_CASE("while jobs end in time, every wait polls") {
  short_waits pool(2);
  CHECK(polls_in(pool, 100, true) == 100);
}

TEST_CASE("while jobs take longer, waits poll less and less, down to one in 65") {
  short_waits pool(2);
  // 1 + 1, 1 + 2, 1 + 4, ... 1 + 64 waits
  CHECK(polls_in(pool, 134, false) == 7);
  CHECK(polls_in(pool, 650, false) == 10);
}

TEST_CASE("one job that ends in time makes every wait poll again") {
  short_waits pool(2);
  polls_in(pool, 1000, false);
  while (!pool.next()) {
  }
  pool.polled(true);
  CHECK(polls_in(pool, 10, true) == 10);
}

TEST_CASE("after one slow job, one wait does not poll") {
  short_waits pool(2);
  polls_in(pool, 1000, true);
  CHECK(pool.next());
  pool.polled(false);
  CHECK(!pool.next());
  CHECK(pool.next());
}

TEST_CASE("at most half of the cores poll at once") {
  short_waits four(4);
  CHECK(four.next());
  CHECK(four.next());
  CHECK(!four.next());
  four.polled(true);
  CHECK(four.next());
  short_waits one(1);
  CHECK(!one.next());
}
