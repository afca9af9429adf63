#include "runtime/schedule/late_batches.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::schedule;
using namespace std::chrono_literals;

namespace {

constexpr steady_time first_lease{1h};

/// Batches 0 .. peers_min - 1 each took this long.
late_batches after_batches_of(nanoseconds each) {
  late_batches made;
  for (stream_position p = 0; p < late_batches::peers_min; ++p) {
    made.leased(p, first_lease);
    made.loaded(p, first_lease + each);
  }
  return made;
}

constexpr stream_position next_batch = late_batches::peers_min;

}  // namespace

TEST_CASE("no batch is late before enough batches have arrived") {
  late_batches batches;
  batches.leased(0, first_lease);
  CHECK_FALSE(batches.is_late(0, first_lease));
  CHECK_FALSE(batches.is_late(0, first_lease + 24h));
}

TEST_CASE("a batch is late when the stream has waited for it for twice as long as batches take") {
  late_batches batches = after_batches_of(1s);
  batches.leased(next_batch, first_lease);
  CHECK_FALSE(batches.is_late(next_batch, first_lease + 10s));  // this batch has just become the next one
  CHECK_FALSE(batches.is_late(next_batch, first_lease + 12s));
  CHECK(batches.is_late(next_batch, first_lease + 13s));
}

TEST_CASE("the wait counts from the latest lease") {
  late_batches batches = after_batches_of(1s);
  batches.leased(next_batch, first_lease);
  CHECK_FALSE(batches.is_late(next_batch, first_lease));
  batches.leased(next_batch, first_lease + 10s);  // the batch's first worker was lost
  CHECK_FALSE(batches.is_late(next_batch, first_lease + 11s));
  CHECK(batches.is_late(next_batch, first_lease + 13s));
}

TEST_CASE("fast batches are late only beyond the minimum limit, and batches without a lease are never late") {
  late_batches batches = after_batches_of(1ms);
  CHECK_FALSE(batches.is_late(next_batch, first_lease));
  CHECK_FALSE(batches.is_late(next_batch, first_lease + 24h));
  batches.leased(next_batch, first_lease + 24h);
  CHECK_FALSE(batches.is_late(next_batch, first_lease + 24h + late_batches::limit_min));
  CHECK(batches.is_late(next_batch, first_lease + 24h + late_batches::limit_min + 1ms));
}

TEST_CASE("after a seek no batch is waited for") {
  late_batches batches = after_batches_of(1s);
  batches.leased(next_batch, first_lease);
  CHECK_FALSE(batches.is_late(next_batch, first_lease));
  batches.forget();
  CHECK_FALSE(batches.is_late(next_batch, first_lease + 1h));
}
