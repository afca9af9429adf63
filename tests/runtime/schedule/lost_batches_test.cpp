#include "runtime/schedule/lost_batches.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace penstock;
using namespace std::chrono_literals;
using schedule::lost_batches;

namespace {

constexpr steady_time the_start = steady_time{} + 1h;

/// How much of the wait deaths have cost, without pauses.
nanoseconds cost_of_part(const std::optional<lost_wait>& part) {
  return part ? part->to - std::max(part->from, part->first_leased) : 0ns;
}

}  // namespace

TEST_CASE("a wait for a batch whose worker died costs the time from its first lease until its last one") {
  lost_batches losses;
  losses.lost(5, the_start + 1s);
  CHECK(cost_of_part(losses.part_of_wait(5, the_start, the_start + 4s)) == 3s);  // no worker has it yet
  losses.leased(5, the_start + 6s);
  CHECK(cost_of_part(losses.part_of_wait(5, the_start, the_start + 9s)) == 5s);
  CHECK(cost_of_part(losses.part_of_wait(5, the_start + 2s, the_start + 9s)) == 4s);
  losses.lost(5, the_start + 6s);
  CHECK(cost_of_part(losses.part_of_wait(5, the_start, the_start + 9s)) == 8s);
  losses.leased(5, the_start + 10s);
  CHECK(cost_of_part(losses.part_of_wait(5, the_start, the_start + 12s)) == 9s);
}

TEST_CASE("a wait costs nothing if no worker lost the batch, or if another worker got it before the wait") {
  lost_batches losses;
  losses.leased(5, the_start);
  CHECK_FALSE(losses.part_of_wait(5, the_start, the_start + 9s));
  losses.lost(5, the_start);
  losses.leased(5, the_start + 1s);
  CHECK_FALSE(losses.part_of_wait(5, the_start + 1s, the_start + 9s));
  CHECK_FALSE(losses.part_of_wait(6, the_start, the_start + 9s));
}

TEST_CASE("a job that repeats a lost one is a further lease of the same batch") {
  lost_batches losses;
  losses.lost(5, the_start);
  losses.repeats(9, 5);
  CHECK(cost_of_part(losses.part_of_wait(9, the_start + 2s, the_start + 4s)) == 2s);
  losses.leased(9, the_start + 6s);
  CHECK(cost_of_part(losses.part_of_wait(9, the_start + 2s, the_start + 9s)) == 4s);
  losses.lost(9, the_start + 6s);
  CHECK(losses.part_of_wait(9, the_start, the_start + 9s)->first_leased == the_start);
}

TEST_CASE("a job that repeats one that no worker lost costs no wait") {
  lost_batches losses;
  losses.repeats(9, 5);
  losses.leased(9, the_start + 6s);
  CHECK_FALSE(losses.part_of_wait(9, the_start, the_start + 9s));
}

TEST_CASE("the latest losses are kept, and earlier ones forgotten") {
  lost_batches losses;
  for (std::uint64_t job = 1; job <= lost_batches::kept + 1; ++job) losses.lost(job, the_start);
  CHECK_FALSE(losses.part_of_wait(1, the_start, the_start + 1s));
  CHECK(losses.part_of_wait(2, the_start, the_start + 1s));
  CHECK(losses.part_of_wait(lost_batches::kept + 1, the_start, the_start + 1s));
}
