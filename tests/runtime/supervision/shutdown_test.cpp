#include "runtime/supervision/shutdown.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::supervision;
using namespace std::chrono_literals;

TEST_CASE("of 25 s, workers get 10 and the owner 12, and the last 3 are for killing") {
  const shutdown_shares shares = shares_of(25s);
  CHECK(shares.items == 10s);
  CHECK(shares.owner == 12s);
  CHECK(shares.killing == 3s);
}

TEST_CASE("the shares of a shutdown add up to the whole time") {
  for (const nanoseconds in_all : {nanoseconds(9s), nanoseconds(60s), nanoseconds(1h)}) {
    const shutdown_shares shares = shares_of(in_all);
    CHECK(shares.items + shares.owner + shares.killing == in_all);
  }
}

TEST_CASE("an immediate shutdown gives no part any time, but waits for the kernel") {
  const shutdown_shares shares = shares_of(0s);
  CHECK(shares.items == 0s);
  CHECK(shares.owner == 0s);
  CHECK(shares.killing == shortest_killing);
}
