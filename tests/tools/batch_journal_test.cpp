#include "tools/penstock/chaos/batch_journal.hpp"

#include <catch2/catch_test_macros.hpp>

#include <string>

using namespace penstock::cli;

namespace {

const std::string first_owner = "{\"owner\":7}\n";
const std::string second_owner = "{\"owner\":8}\n";
const std::string first_batch =
    R"({"owner":7,"epoch":0,"batch":0,"samples":[4,1],"digest":"00000000000000ff"})"
    "\n";
const std::string next_batch = R"({"owner":8,"epoch":0,"batch":1,"samples":[],"digest":"8000000000000000"})"
                               "\n";

}  // namespace

TEST_CASE("a journal gives batches with the number of their owner") {
  const auto got = read_journal(first_owner + first_batch + second_owner + next_batch);
  REQUIRE(got);
  REQUIRE(got->batches.size() == 2);
  CHECK(got->batches[0].samples == std::vector<std::uint64_t>{4, 1});
  CHECK(got->batches[0].digest == 255);
  CHECK(got->batches[0].owner == 1);
  CHECK(got->batches[1].owner == 2);
  CHECK(got->batches[1].sequence == 1);
  CHECK(got->batches[1].digest == 0x8000000000000000U);
  CHECK(got->torn == 0);
}

TEST_CASE("an empty journal has no batches") {
  CHECK(read_journal("")->batches.empty());
}

TEST_CASE(
    "wherever an owner's death cuts a line, that line is no batch and the next owner's lines are read") {
  for (std::size_t cut = 1; cut + 1 < first_batch.size(); ++cut) {
    const auto got =
        read_journal(first_owner + first_batch.substr(0, cut) + "\n" + second_owner + next_batch);
    REQUIRE(got);
    CHECK(got->batches.size() == 1);
    CHECK(got->batches[0].owner == 2);
    CHECK(got->torn == 1);
  }
  const auto at_its_end = read_journal(first_owner + first_batch.substr(0, 20));
  REQUIRE(at_its_end);
  CHECK(at_its_end->torn == 1);
}

TEST_CASE("an incomplete line during an owner's life is refused, and so is an unannounced owner") {
  CHECK_FALSE(read_journal(first_owner + "{\"owner\":7,\"ep\n" + first_batch));
  CHECK_FALSE(read_journal(first_owner + next_batch));
  CHECK_FALSE(read_journal(first_batch));
  CHECK_FALSE(read_journal(first_owner + "{\"owner\":7,\"batch\":1}\n"));
}

TEST_CASE("lines of a replaced owner keep that owner's number") {
  const auto got = read_journal(first_owner + second_owner + first_batch);
  REQUIRE(got);
  CHECK(got->batches.at(0).owner == 1);
}

TEST_CASE("a reused pid counts as another owner") {
  CHECK(read_journal(first_owner + second_owner + first_owner + first_batch)->batches.at(0).owner == 3);
}

TEST_CASE("only whole lines count as being within the first bytes") {
  const auto got = read_journal(first_owner + first_batch + second_owner + next_batch);
  REQUIRE(got);
  const std::uint64_t one = first_owner.size() + first_batch.size();
  CHECK(got->batches_within(0) == 0);
  CHECK(got->batches_within(one - 1) == 0);
  CHECK(got->batches_within(one) == 1);
  CHECK(got->batches_within(1000000) == 2);
}
