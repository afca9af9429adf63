// Batches that the ledger gives to a second worker because the first one is late; one rule per test.
#include "tests/runtime/schedule/ledger_commands.hpp"
#include "tests/runtime/schedule/small_plan.hpp"

#include <catch2/catch_test_macros.hpp>

#include <map>
#include <optional>
#include <set>

using namespace penstock;
using namespace penstock::schedule;
using namespace penstock::testing::ledgers;
using testing::small_plan;

namespace {

constexpr worker_ref c1{2, 1};

/// Two workers with two batches of two samples each, at positions 0 .. 3; worker 0 has the first.
struct two_workers {
  explicit two_workers(ledger_settings rules = {}, std::uint32_t slots = 3) : books(rules, plan, {0, 20}) {
    books.worker_joined(a1, slots);
    books.worker_joined(b1, slots);
    for (const load_command& load : only<load_command>(books.advance())) loads.emplace(load.position, load);
    REQUIRE(loads.at(0).lease.holder == a1);
  }
  /// The resulting hedge, if these workers are late.
  std::optional<load_command> hedge(const std::set<std::uint32_t>& late) {
    books.hedge(late);
    for (const load_command& load : only<load_command>(books.advance())) {
      if (load.hedge) return load;
    }
    return std::nullopt;
  }

  small_plan plan{40, 2};
  ledger books;
  std::map<stream_position, load_command> loads;
};

}  // namespace

TEST_CASE("if its worker is late, the batch that the stream waits for is given to another worker too, once") {
  two_workers w;
  CHECK_FALSE(w.hedge({}));
  const auto copy = w.hedge({0});
  REQUIRE(copy);
  CHECK(copy->position == 0);
  CHECK(copy->lease.holder == b1);
  CHECK(copy->samples == w.loads.at(0).samples);
  const auto next = w.hedge({0});
  CHECK((!next || next->position != 0));
  CHECK_FALSE(w.hedge({0, 1}));
  CHECK(w.books.hedges().started == (next ? 2 : 1));
}

TEST_CASE("the first worker to finish wins, and the other worker's report is ignored") {
  for (const bool second_wins : {true, false}) {
    two_workers w;
    const auto copy = w.hedge({0});
    REQUIRE(copy);
    const load_command& winner = second_wins ? *copy : w.loads.at(0);
    const load_command& loser = second_wins ? w.loads.at(0) : *copy;
    REQUIRE(w.books.loaded(success(winner)) == arrival::accepted);
    const auto commands = w.books.advance();
    const auto uploads = only<upload_command>(commands);
    REQUIRE(uploads.size() == 1);
    REQUIRE(only<drop_command>(commands).size() == 1);
    CHECK(only<drop_command>(commands)[0].lease == loser.lease);
    CHECK(uploads[0].worker == winner.lease.holder.worker);
    CHECK(uploads[0].slot == winner.lease.slot);
    CHECK_FALSE(w.books.position_of(loser.lease));
    // The late copy is dropped even if its contents differ.
    CHECK(w.books.loaded({loser.lease, 0, {{0, "torn"}, {1, "torn"}}}) == arrival::accepted);
    CHECK(only<upload_command>(w.books.advance()).empty());
    w.books.slot_released(uploads[0].upload);
    CHECK(w.books.acknowledged(uploads[0].upload)->delivered == 2);
    CHECK(w.books.hedges().won == (second_wins ? 1 : 0));
  }
}

TEST_CASE(
    "if one of two workers of a batch dies, the other one continues, and the batch is not leased again") {
  for (const bool second_dies : {true, false}) {
    two_workers w;
    const auto copy = w.hedge({0});
    REQUIRE(copy);
    const load_command& dead = second_dies ? *copy : w.loads.at(0);
    const load_command& other = second_dies ? w.loads.at(0) : *copy;
    w.books.worker_died(dead.lease.holder, std::nullopt, "killed");
    for (const load_command& load : only<load_command>(w.books.advance())) CHECK(load.position != 0);
    REQUIRE(w.books.loaded(success(other)) == arrival::accepted);
    const auto commands = w.books.advance();
    REQUIRE(only<upload_command>(commands).size() == 1);
    CHECK(only<upload_command>(commands)[0].worker == other.lease.holder.worker);
    CHECK(only<batch_recovered>(commands).size() == (second_dies ? 0 : 1));
  }
}

TEST_CASE(
    "two workers that die of a sample that both had count as one attempt, and the next attempt runs elsewhere") {
  two_workers w;
  const auto copy = w.hedge({0});
  REQUIRE(copy);
  w.books.worker_joined(c1, 8);
  static_cast<void>(w.books.advance());
  const auto first = w.books.worker_died(a1, mark_of(w.loads.at(0), 1), "SIGSEGV");
  REQUIRE(first);
  CHECK_FALSE(first->repeated);
  CHECK(only<sample_quarantined>(w.books.advance()).empty());
  const auto second = w.books.worker_died(b1, mark_of(*copy, 1), "SIGSEGV");
  REQUIRE(second);
  CHECK(second->sample == 1);
  CHECK(second->repeated);
  w.books.worker_joined({0, 2}, 3);
  w.books.worker_joined({1, 2}, 3);
  for (const load_command& load : only<load_command>(w.books.advance())) {
    if (load.position != 0) continue;
    CHECK(load.lease.holder == c1);
    CHECK(load.samples[1].attempt == 2);
    const auto other = w.hedge({2});
    CHECK((!other || other->position != 0));  // a suspect runs in one worker at a time
    return;
  }
  FAIL("the batch was not leased again");
}

TEST_CASE("two workers that die of different samples of a batch count as an attempt of each sample") {
  two_workers w;
  const auto copy = w.hedge({0});
  REQUIRE(copy);
  CHECK_FALSE(w.books.worker_died(a1, mark_of(w.loads.at(0), 0), "SIGSEGV")->repeated);
  CHECK_FALSE(w.books.worker_died(b1, mark_of(*copy, 1), "SIGSEGV")->repeated);
  w.books.worker_joined(c1, 3);
  const auto again = only<load_command>(w.books.advance());
  REQUIRE_FALSE(again.empty());
  CHECK(again[0].samples == std::vector<planned_sample>{{0, 2}, {1, 2}});
}

TEST_CASE("the death of a worker whose copy is no longer needed is blamed on no sample") {
  two_workers w;
  const auto copy = w.hedge({0});
  REQUIRE(copy);
  REQUIRE(w.books.loaded(success(*copy)) == arrival::accepted);
  CHECK_FALSE(w.books.worker_died(a1, mark_of(w.loads.at(0), 0), "SIGSEGV"));
}

TEST_CASE(
    "a batch that is being loaded twice is taken from both workers when one of its samples is quarantined") {
  two_workers w({.max_attempts = 1});
  const auto copy = w.hedge({0});
  REQUIRE(copy);
  w.books.worker_died(a1, mark_of(w.loads.at(0), 0), "SIGSEGV");
  CHECK_FALSE(w.books.position_of(copy->lease));
  w.books.worker_joined(c1, 3);
  const auto again = only<load_command>(w.books.advance());
  REQUIRE_FALSE(again.empty());
  CHECK(again[0].position == 0);
  CHECK(again[0].samples == std::vector<planned_sample>{{1, 1}});
}

TEST_CASE(
    "if all slots hold later batches, an idle worker drops its latest one for the batch that the stream waits for") {
  two_workers w({}, 2);
  for (const stream_position p : {1, 3}) REQUIRE(w.books.loaded(success(w.loads.at(p))) == arrival::accepted);
  CHECK(w.books.leases_of(1) == 0);
  w.books.hedge({0});
  const auto commands = w.books.advance();
  REQUIRE(only<batch_discarded>(commands).size() == 1);
  CHECK(only<batch_discarded>(commands)[0].position == 3);
  const auto copies = only<load_command>(commands);
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].position == 0);
  CHECK(copies[0].lease.holder == b1);
  REQUIRE(w.books.loaded(success(copies[0])) == arrival::accepted);
  const auto uploads = only<upload_command>(w.books.advance());
  REQUIRE(uploads.size() == 2);
  CHECK(uploads[1].position == 1);
}

TEST_CASE("the batch that the stream waits for goes only to an idle worker") {
  two_workers w;
  REQUIRE(w.books.head());
  CHECK(w.books.head()->position == 0);
  CHECK(w.books.head()->worker == 0);
  w.books.hedge_head();  // both workers have leases, so neither is idle
  CHECK(w.books.hedges().started == 0);
  w.books.worker_joined(c1, 3);
  w.books.set_paused(true);
  static_cast<void>(w.books.advance());
  w.books.hedge_head();
  CHECK(w.books.hedges().started == 0);
  w.books.set_paused(false);
  w.books.hedge_head();
  const auto loads = only<load_command>(w.books.advance());
  REQUIRE_FALSE(loads.empty());
  CHECK(loads[0].hedge);
  CHECK(loads[0].position == 0);
  CHECK(loads[0].lease.holder == c1);
  CHECK_FALSE(w.books.head());  // two workers have the head
  w.books.hedge_head();
  CHECK(w.books.hedges().started == 1);
}

TEST_CASE("no batch is hedged while the stream is paused, or if every worker is late") {
  two_workers w;
  CHECK_FALSE(w.hedge({0, 1}));
  w.books.set_paused(true);
  CHECK_FALSE(w.hedge({0}));
  w.books.set_paused(false);
  w.books.worker_drains(b1);
  CHECK_FALSE(w.hedge({0}));
}

TEST_CASE("after a seek the reports of both workers are ignored") {
  two_workers w;
  const auto copy = w.hedge({0});
  REQUIRE(copy);
  w.books.seek({10, 20});
  static_cast<void>(w.books.advance());
  CHECK(w.books.loaded(success(*copy)) == arrival::accepted);
  CHECK(w.books.loaded(success(w.loads.at(0))) == arrival::accepted);
  CHECK(only<upload_command>(w.books.advance()).empty());
}

TEST_CASE(
    "each worker's spare slot is used by hedges, and by the stream's first batch if that lost its lease") {
  two_workers w({.spare_slots = 1});
  for (const stream_position p : {1, 3}) REQUIRE(w.books.loaded(success(w.loads.at(p))) == arrival::accepted);
  CHECK(only<load_command>(w.books.advance()).empty());  // two slots of worker 1 are full
  const auto copy = w.hedge({0});
  REQUIRE(copy);
  CHECK(copy->lease.holder == b1);
  REQUIRE(w.books.loaded(success(*copy)) == arrival::accepted);
  CHECK(only<upload_command>(w.books.advance()).size() == 2);

  two_workers again({.spare_slots = 1});
  for (const stream_position p : {1, 3}) REQUIRE(again.books.loaded(success(again.loads.at(p))) == arrival::accepted);
  again.books.worker_died(a1, std::nullopt, "killed");
  const auto commands = again.books.advance();
  CHECK(only<batch_discarded>(commands).empty());
  REQUIRE(only<load_command>(commands).size() == 1);
  CHECK(only<load_command>(commands)[0].position == 0);
}
