#include "runtime/schedule/departures.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using schedule::departures;

namespace {

constexpr worker_ref first{0, 1};
constexpr worker_ref second{1, 1};

std::vector<worker_ref> due(departures& d, std::size_t leases) {
  return d.due([=](std::uint32_t) { return leases; });
}

}  // namespace

TEST_CASE("a draining worker is asked to stop once, when it holds no more leases") {
  departures d;
  CHECK(due(d, 0).empty());
  d.drains(first, false);
  CHECK(due(d, 2).empty());
  d.finished_a_batch(first);
  CHECK(due(d, 1).empty());
  CHECK(due(d, 0) == std::vector{first});
  CHECK(due(d, 0).empty());
}

TEST_CASE("a worker drained with after_current_batch stops after its current batch, whatever else it holds") {
  departures d;
  d.finished_a_batch(first);
  d.drains(first, true);
  CHECK(due(d, 2).empty());
  d.finished_a_batch(second);
  CHECK(due(d, 2).empty());
  d.finished_a_batch(first);
  CHECK(due(d, 1) == std::vector{first});
}

TEST_CASE("a draining worker that gets a second, urgent order stops after its next batch") {
  departures d;
  d.drains(first, false);
  d.finished_a_batch(first);
  d.drains(first, true);
  CHECK(due(d, 2).empty());
  d.finished_a_batch(first);
  CHECK(due(d, 2) == std::vector{first});
}

TEST_CASE("an exited worker is not asked to stop, and the next worker in its place is not affected") {
  departures d;
  d.drains(first, true);
  d.finished_a_batch(first);
  d.gone(first);
  CHECK(due(d, 0).empty());
  const worker_ref successor{0, 2};
  d.drains(successor, false);
  d.gone(first);  // a repeated message, which is ignored
  CHECK(due(d, 1).empty());
  CHECK(due(d, 0) == std::vector{successor});
}
