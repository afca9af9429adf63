#include "tools/penstock/chaos/stream_check.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::cli;

namespace {

std::vector<delivered_batch> good() {
  return {{0, 0, {4, 1}, 11}, {0, 1, {0, 3}, 12}, {0, 2, {2}, 13},
          {1, 0, {2, 3}, 21}, {1, 1, {0, 1}, 22}, {1, 2, {4}, 23}};
}

}  // namespace

TEST_CASE("equal streams have no faults") {
  const stream_check check(good());
  CHECK(check.of_undisturbed().none());
  CHECK(check.check(good()).none());
}

TEST_CASE("a missing batch is lost, sample by sample") {
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

TEST_CASE("a batch that occurs twice is delivered twice and out of order") {
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

TEST_CASE("a sample that an undisturbed run repeats is found, too") {
  auto batches = good();
  batches[2].samples = {1};
  CHECK(stream_check(batches).of_undisturbed().duplicated == 1);
}

// ---- several owners ---------------------------------------------------------------------------------------

namespace {

/// The good stream: the first `taken` batches by the first owner, the rest by a second one that starts at `again`.
std::vector<delivered_batch> with_two_owners(std::size_t taken, std::size_t again) {
  auto batches = good();
  batches.resize(taken);
  for (std::size_t i = again; i < good().size(); ++i) {
    batches.push_back(good()[i]);
    batches.back().owner = 2;
  }
  return batches;
}

}  // namespace

TEST_CASE("a second owner may repeat batches that had not been promised") {
  for (std::size_t taken = 0; taken <= good().size(); ++taken) {
    for (std::size_t again = 0; again <= taken; ++again) {
      const auto batches = with_two_owners(taken, again);
      const std::vector<delivery_promise> promises{{taken, again}};
      CHECK(stream_check(good()).check(batches, promises).none());
      CHECK(stream_check::replays_of(batches) == taken - again);
    }
  }
}

TEST_CASE("a promised batch that a second owner delivers again is delivered twice") {
  const stream_faults found = stream_check(good()).check(with_two_owners(3, 1), {{3, 3}});
  CHECK(found.duplicated == 3);
  CHECK(found.lost + found.out_of_order + found.stale == 0);
}

TEST_CASE("a batch that is promised only after its repetition was not delivered twice") {
  CHECK(stream_check(good()).check(with_two_owners(3, 1), {{1, 1}, {5, 3}, {8, 6}}).none());
}

TEST_CASE("a batch that is repeated with other bytes or samples is stale, whichever version is right") {
  auto batches = with_two_owners(3, 1);
  batches[3].digest = 99;  // the batch differs the second time
  CHECK(stream_check(good()).check(batches).stale == 2);
  batches = with_two_owners(3, 1);
  batches[1].digest = 99;  // the batch differs the first time
  CHECK(stream_check(good()).check(batches).stale == 2);
  batches = with_two_owners(3, 1);
  batches[3] = {0, 1, {0}, 98, 2};
  const stream_faults found = stream_check(good()).check(batches);
  CHECK(found.stale == 1);
  CHECK(found.lost == 1);
}

TEST_CASE("a batch that one owner delivers twice is delivered twice, even if a second owner follows") {
  auto batches = with_two_owners(3, 1);
  batches.insert(batches.begin() + 4, batches[3]);
  const stream_faults found = stream_check(good()).check(batches);
  CHECK(found.duplicated == 2);
  CHECK(found.out_of_order == 1);
}

TEST_CASE("a batch that the second owner omits is lost") {
  const stream_faults found = stream_check(good()).check(with_two_owners(2, 3));
  CHECK(found.lost == 1);
  CHECK(found.duplicated + found.out_of_order + found.stale == 0);
}

TEST_CASE("a batch that one owner omitted and the next one delivers is out of order") {
  auto batches = with_two_owners(2, 3);
  batches.push_back(good()[2]);
  batches.back().owner = 3;
  const stream_faults found = stream_check(good()).check(batches);
  CHECK(found.out_of_order == 1);
  CHECK(found.lost + found.duplicated + found.stale == 0);
}

TEST_CASE("batches that change places under the second owner are out of order") {
  auto batches = with_two_owners(3, 2);
  std::swap(batches[5], batches[6]);
  CHECK(stream_check(good()).check(batches).out_of_order == 1);
}

TEST_CASE("an owner that delivers after the next one has started is stale") {
  auto batches = with_two_owners(3, 3);
  batches.push_back(good()[5]);
  const stream_faults found = stream_check(good()).check(batches);
  CHECK(found.stale == 1);
  CHECK(found.duplicated == 1);
}

TEST_CASE("a batch promised before any owner had it is lost, even if it is delivered later") {
  CHECK(stream_check(good()).check(good(), {{2, 3}}).lost == 1);
  CHECK(stream_check(good()).check(good(), {{2, 2}, {6, 6}}).none());
  auto batches = good();
  batches.pop_back();
  CHECK(stream_check(good()).check(batches, {{5, 6}}).lost == 1);  // a lost batch counts once, even if it was also promised
}

TEST_CASE("a batch without rows is detected when it is missing or repeated") {
  auto stream = good();
  stream[2].samples.clear();
  auto batches = stream;
  batches.erase(batches.begin() + 2);
  CHECK(stream_check(stream).check(batches).lost == 1);
  batches = stream;
  batches.insert(batches.begin() + 3, batches[2]);
  CHECK(stream_check(stream).check(batches).out_of_order == 1);
}
