// Which samples of a journal's batches may have changed.
#include "tools/penstock/dataset/journal_check.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::cli;
using samples = std::vector<std::uint64_t>;

TEST_CASE("samples in a batch with equal bytes are not suspected") {
  const std::vector<delivered_batch> lines{
      {0, 0, {1, 2}, 10, 1}, {0, 1, {3, 4}, 11, 1}, {1, 0, {2, 3}, 12, 1}, {1, 1, {4, 1}, 13, 1}};
  journal_check check(lines);
  check.take(0, {{1, 2}, 10});
  check.take(1, {{3, 4}, 99});
  check.take(2, {{2, 3}, 99});
  check.take(3, {{4, 1}, 13});
  CHECK(check.changed().size() == 2);
  CHECK(check.suspects() == std::set<std::uint64_t>{3});
}

TEST_CASE("missing and new samples are named, and no other sample of their batch is suspected") {
  const std::vector<delivered_batch> lines{{0, 0, {1, 2, 2}, 10, 1}};
  journal_check check(lines);
  check.take(0, {{1, 2, 5}, 99});
  REQUIRE(check.changed().size() == 1);
  CHECK(check.changed()[0].gone == samples{2});
  CHECK(check.changed()[0].come == samples{5});
  CHECK(check.suspects().empty());
}

TEST_CASE("a batch that was delivered twice is checked once, and two digests of it are a contradiction") {
  const std::vector<delivered_batch> lines{
      {1, 0, {3}, 12, 1}, {0, 0, {1}, 10, 1}, {0, 0, {1}, 10, 2}, {1, 0, {3}, 13, 2}};
  const journal_check check(lines);
  REQUIRE(check.batches().size() == 2);
  CHECK(check.batches()[0].epoch == 0);
  CHECK(check.batches()[1].digest == 13);
  CHECK(check.contradictory().size() == 1);
}

TEST_CASE("batches with several lines are counted, and contradict each other only if their contents differ") {
  const std::vector<delivered_batch> lines{{0, 0, {1}, 10, 1}, {0, 0, {1}, 10, 2}, {0, 0, {1}, 10, 3},
                                           {0, 1, {2}, 11, 1}, {0, 1, {9}, 11, 2}, {0, 1, {9}, 11, 3},
                                           {0, 2, {3}, 12, 3}};
  const journal_check check(lines);
  CHECK(check.repeated() == 2);
  REQUIRE(check.contradictory().size() == 1);
  CHECK(check.contradictory()[0].sequence == 1);
}

TEST_CASE("gaps between the first and the last batch are named, and those before and after are not") {
  const auto extent = [](std::uint64_t) { return epoch_extent{0, 4}; };
  const std::vector<delivered_batch> whole{
      {0, 2, {}, 0, 1}, {0, 3, {}, 0, 1}, {1, 0, {}, 0, 1}, {1, 1, {}, 0, 1}};
  CHECK(journal_check(whole).missing(extent).empty());
  CHECK(journal_check({}).missing(extent).empty());
  const std::vector<delivered_batch> torn{{0, 1, {}, 0, 1}, {0, 3, {}, 0, 1}, {3, 2, {}, 0, 1}};
  CHECK(journal_check(torn).missing(extent) ==
        std::vector<missing_batches>{{0, 2, 2}, {1, 0, 3}, {2, 0, 3}, {3, 0, 1}});
  const std::vector<delivered_batch> cut{{0, 1, {}, 0, 1}, {1, 2, {}, 0, 1}};
  CHECK(journal_check(cut).missing(extent) == std::vector<missing_batches>{{0, 2, 3}, {1, 0, 1}});
}

TEST_CASE("a run of batches goes on across epochs, and ends at a gap") {
  const auto extent = [](std::uint64_t) { return epoch_extent{0, 2}; };
  const std::vector<delivered_batch> lines{{0, 0, {}, 0, 1}, {0, 1, {}, 0, 1}, {1, 0, {}, 0, 1}, {1, 1, {}, 0, 1},
                                           {3, 0, {}, 0, 1}, {4, 0, {}, 0, 1}};
  const journal_check check(lines);
  CHECK(check.end_of_run(0, extent) == 4);
  CHECK(check.end_of_run(4, extent) == 5);
  CHECK(check.end_of_run(5, extent) == 6);
  const auto entered = [&](std::uint64_t epoch) { return epoch_extent{0, 2, epoch == 1}; };
  CHECK(check.end_of_run(0, entered) == 2);
  CHECK(check.end_of_run(2, entered) == 4);
}

TEST_CASE("an epoch that a group entered midway has no gap before its first batch") {
  const std::vector<delivered_batch> lines{{0, 3, {}, 0, 1}, {1, 2, {}, 0, 1}};
  const journal_check check(lines);
  CHECK(check.missing([](std::uint64_t epoch) { return epoch_extent{epoch == 1 ? 2U : 0U, 4}; }).empty());
}

TEST_CASE("a journal with an epoch that no run reaches does not make the search endless") {
  const std::vector<delivered_batch> lines{{0, 0, {}, 0, 1}, {std::uint64_t{1} << 60U, 0, {}, 0, 1}};
  const auto gaps = journal_check(lines).missing([](std::uint64_t) { return epoch_extent{0, 1}; });
  CHECK(gaps.size() == journal_check::gaps_max);
}
