#include "tools/penstock/chaos/stream_check.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::cli;

namespace {

std::vector<delivered_batch> good() {
  return {{0, 0, {4, 1}, 11}, {0, 1, {0, 3}, 12}, {0, 2, {2}, 13},
          {1, 0, {2, 3}, 21}, {1, 1, {0, 1}, 22}, {1, 2, {4}, 23}};
}

}  // namespace

TEST_CASE("the same stream has no faults") {
  const stream_check check(good());
  CHECK(check.of_undisturbed().none());
  CHECK(check.check(good()).none());
}

TEST_CASE("a batch that is missing is lost, sample by sample") {
  auto batches = good();
  batches.erase(batches.begin() + 1);
  const stream_faults found = stream_check(good()).check(batches);
  CHECK(found.lost == 2);
  CHECK(found.duplicated + found.out_of_order + found.stale == 0);
}

TEST_CASE("a sample that left its batch is lost") {
  auto batches = good();
  batches[1] = {0, 1, {3}, 99};
  const stream_faults found = stream_check(good()).check(batches);
  CHECK(found.lost == 1);
  CHECK(found.stale == 0);
}

TEST_CASE("a batch that comes twice is delivered twice and out of order") {
  auto batches = good();
  batches.insert(batches.begin() + 2, batches[1]);
  const stream_faults found = stream_check(good()).check(batches);
  CHECK(found.duplicated == 2);
  CHECK(found.out_of_order == 1);
  CHECK(found.lost == 0);
}

TEST_CASE("batches that change places are out of order") {
  auto batches = good();
  std::swap(batches[3], batches[4]);
  CHECK(stream_check(good()).check(batches).out_of_order == 1);
}

TEST_CASE("other bytes, foreign samples and another order of samples are stale") {
  auto batches = good();
  batches[0].digest = 77;
  CHECK(stream_check(good()).check(batches).stale == 1);
  batches = good();
  batches[3].samples = {2, 4};
  CHECK(stream_check(good()).check(batches).stale == 1);
  batches = good();
  batches[0].samples = {1, 4};
  CHECK(stream_check(good()).check(batches).stale == 1);
  batches = good();
  batches.push_back({2, 0, {0}, 31});
  CHECK(stream_check(good()).check(batches).stale == 1);
}

TEST_CASE("an undisturbed run that repeats a sample is found too") {
  auto batches = good();
  batches[2].samples = {1};
  CHECK(stream_check(batches).of_undisturbed().duplicated == 1);
}
