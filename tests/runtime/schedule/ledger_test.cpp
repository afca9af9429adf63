// The ledger's rules one by one. Hedges are in ledger_hedges_test.cpp, combinations in ledger_model_test.cpp.
#include "tests/runtime/schedule/ledger_commands.hpp"
#include "tests/runtime/schedule/small_plan.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <optional>

using namespace penstock;
using namespace std::chrono_literals;
using namespace penstock::schedule;
using namespace penstock::testing::ledgers;
using testing::small_plan;

namespace {

/// Kills the holder of `load` on this row and starts the next incarnation.
std::optional<blame> kill_on(ledger& books, const load_command& load, std::uint32_t row) {
  const auto blamed = books.worker_died(load.lease.holder, mark_of(load, row), "SIGSEGV");
  books.worker_joined({load.lease.holder.worker, load.lease.holder.incarnation + 1}, 2);
  return blamed;
}

}  // namespace

TEST_CASE("a worker gets two leases, in the order of the plan") {
  const small_plan plan(12, 2);
  ledger books({}, plan, {0, 6});
  books.worker_joined(a1, 3);
  const auto loads = only<load_command>(books.advance());
  REQUIRE(loads.size() == 2);
  for (std::uint64_t i = 0; i < 2; ++i) {
    CHECK(loads[i].position == i);
    CHECK(loads[i].samples == std::vector<planned_sample>{{2 * i, 1}, {2 * i + 1, 1}});
  }
}

TEST_CASE("the worker with the fewest leases gets a batch, and among equals the one in the lowest place: a local one before one on a host") {
  constexpr worker_ref remote1{65, 1};
  const small_plan plan(12, 1);
  ledger books({}, plan, {0, 12});
  books.worker_joined(remote1, 3);
  books.worker_joined(b1, 3);
  books.worker_joined(a1, 3);
  std::vector<std::uint32_t> given;
  for (const load_command& load : only<load_command>(books.advance())) given.push_back(load.lease.holder.worker);
  CHECK(given == std::vector<std::uint32_t>{0, 1, 65, 0, 1, 65});
}

TEST_CASE("among workers with as many leases, local ones get a batch first, and then one on the host with the fewest leases") {
  const small_plan plan(12, 1);
  ledger books({}, plan, {0, 12});
  for (const std::uint32_t place : {65U, 66U, 67U}) books.worker_joined({place, 1}, 2, worker_kind::loader, 7);
  for (const std::uint32_t place : {68U, 69U}) books.worker_joined({place, 1}, 2, worker_kind::loader, 8);
  books.worker_joined(a1, 2);
  std::vector<std::uint32_t> given;
  const auto loads = only<load_command>(books.advance());
  for (const load_command& load : loads) given.push_back(load.lease.holder.worker);
  CHECK(given == std::vector<std::uint32_t>{0, 65, 68, 66, 69, 67, 0, 68, 65, 69, 66, 67});

  SECTION("the leases of a dead worker no longer count") {
    for (const std::uint32_t place : {65U, 66U, 67U}) books.worker_died({place, 1}, std::nullopt, "SIGKILL");
    static_cast<void>(books.advance());
    books.worker_joined({65, 2}, 2, worker_kind::loader, 9);
    books.worker_joined({70, 1}, 2, worker_kind::loader, 7);
    given.clear();
    for (const load_command& load : only<load_command>(books.advance())) given.push_back(load.lease.holder.worker);
    CHECK(given == std::vector<std::uint32_t>{65, 70, 65, 70});
  }
}

TEST_CASE("a worker whose storage responds late gets as many leases as it may read ahead") {
  const small_plan plan(32, 1);
  ledger books({.leases_ahead = 5}, plan, {0, 32});
  books.worker_joined(a1, 8);
  books.worker_joined(b1, 3);
  const auto loads = only<load_command>(books.advance());
  CHECK(books.leases_of(0) == 5);
  CHECK(books.leases_of(1) == 3);
  REQUIRE(books.loaded(success(loads.front())) == arrival::accepted);
  CHECK(only<load_command>(books.advance()).size() == 1);
}

TEST_CASE("while batches are slow a worker gets one lease at a time") {
  const small_plan plan(64, 1);
  ledger books({.slow_batch = 50ms}, plan, {0, 64});
  books.worker_joined(a1, 8);
  const auto report = [&](const load_command& load, nanoseconds busy) {
    load_report loaded = success(load);
    loaded.busy = busy;
    REQUIRE(books.loaded(loaded) == arrival::accepted);
    return only<load_command>(books.advance());
  };
  auto held = only<load_command>(books.advance());
  REQUIRE(held.size() == 2);  // the duration of a batch is not known yet
  CHECK(report(held[0], 50ms).empty());
  held = report(held[1], 60ms);
  REQUIRE(held.size() == 1);
  SECTION("and several again when they are fast") {
    int fast = 0;
    while (held.size() == 1) {
      held = report(held[0], 10ms);
      books.slot_released(static_cast<std::uint64_t>(++fast));
      REQUIRE(fast < 4);
    }
    CHECK(held.size() == 2);
  }
  SECTION("but a batch that lost its lease is leased in addition") {
    books.worker_joined(b1, 8);
    const auto of_b = only<load_command>(books.advance());
    REQUIRE(of_b.size() == 1);
    books.worker_died(a1, std::nullopt, "killed");
    const auto again = only<load_command>(books.advance());
    REQUIRE(again.size() == 1);
    CHECK(again[0].position == held[0].position);
    CHECK(books.leases_of(b1.worker) == 2);
  }
}

TEST_CASE("a worker with many slots leaves batches for a worker that becomes ready later") {
  const small_plan plan(32, 1);
  ledger books({}, plan, {0, 32});
  books.worker_joined(a1, 64);
  auto of_a = only<load_command>(books.advance());
  books.worker_joined(b1, 64);
  auto of_b = only<load_command>(books.advance());
  std::uint32_t loaded_by_b = 0;
  while (!of_a.empty() || !of_b.empty()) {  // both at the same pace, and neither is ever without a lease
    for (auto* leases : {&of_a, &of_b}) {
      if (leases->empty()) continue;
      REQUIRE(books.loaded(success(leases->front())) == arrival::accepted);
      if (leases == &of_b) ++loaded_by_b;
      leases->erase(leases->begin());
      for (const load_command& next : only<load_command>(books.advance()))
        (next.lease.holder == a1 ? of_a : of_b).push_back(next);
    }
    REQUIRE(of_a.size() <= 2);
    REQUIRE(of_b.size() <= 2);
  }
  CHECK(loaded_by_b == 16);
}

TEST_CASE(
    "each time a worker runs out of leases while slots are free, it may hold twice as many from then on") {
  const small_plan plan(64, 1);
  ledger books({}, plan, {0, 64});
  books.worker_joined(a1, 16);
  for (const std::size_t held : {2, 4, 8, 2}) {
    const auto loads = only<load_command>(books.advance());
    CHECK(loads.size() == held);  // the fourth time only two slots are left: all others are being copied
    for (const load_command& load : loads) REQUIRE(books.loaded(success(load)) == arrival::accepted);
  }
  CHECK(only<load_command>(books.advance()).empty());
  books.worker_died(a1, std::nullopt, "killed");
  books.worker_joined(a2, 16);
  for (std::uint64_t upload = 1; upload <= 16; ++upload) books.slot_released(upload);
  CHECK(only<load_command>(books.advance()).size() == 2);
}

namespace {

ledger_settings relaxed(std::uint32_t window) {
  return {3, 8, bad_sample_rule::skip, window};
}

/// Loads everything that can be leased except these positions. Returns the uploads, in order.
std::vector<stream_position> uploads_without(ledger& books, const std::vector<stream_position>& these) {
  std::vector<stream_position> uploads;
  for (auto commands = books.advance(); !commands.empty(); commands = books.advance()) {
    for (const upload_command& upload : only<upload_command>(commands)) uploads.push_back(upload.position);
    for (const load_command& load : only<load_command>(commands)) {
      if (std::ranges::find(these, load.position) == these.end())
        REQUIRE(books.loaded(success(load)) == arrival::accepted);
    }
  }
  return uploads;
}

}  // namespace

TEST_CASE("in strict order a late batch delays all batches after it") {
  const small_plan plan(64, 1);
  ledger books({}, plan, {0, 64});
  for (std::uint32_t w = 0; w < 4; ++w) books.worker_joined({w, 1}, 16);
  CHECK(uploads_without(books, {2}) == std::vector<stream_position>{0, 1});
}

TEST_CASE("in relaxed order the window limits how many batches pass a late one") {
  const small_plan plan(64, 1);
  ledger books(relaxed(3), plan, {0, 64});
  for (std::uint32_t w = 0; w < 4; ++w) books.worker_joined({w, 1}, 16);
  CHECK(uploads_without(books, {2}) == std::vector<stream_position>{0, 1, 3, 4, 5});
}

TEST_CASE("no batch of the next epoch passes a late one of this epoch") {
  const small_plan plan(4, 1);
  ledger books(relaxed(8), plan, {0, 12});
  for (std::uint32_t w = 0; w < 4; ++w) books.worker_joined({w, 1}, 16);
  CHECK(uploads_without(books, {1}) == std::vector<stream_position>{0, 2, 3});
}

TEST_CASE("batches that an earlier run delivered early are not loaded again") {
  const small_plan plan(8, 1);
  ledger books({}, plan, {2, 8, 0b101});  // 3 and 5
  books.worker_joined(a1, 16);
  CHECK(uploads_without(books, {}) == std::vector<stream_position>{2, 4, 6, 7});
  for (std::uint64_t upload = 1; upload <= 4; ++upload) {
    books.slot_released(upload);
    CHECK_FALSE(books.finished());
    REQUIRE(books.acknowledged(upload));
  }
  CHECK(books.finished());
}

TEST_CASE("a run that ends before a batch that was delivered early finishes without it") {
  const small_plan plan(8, 1);
  ledger books({}, plan, {2, 4, 0b1010});  // positions 4 and 6 were delivered early; the run ends before them
  books.worker_joined(a1, 16);
  CHECK(uploads_without(books, {}) == std::vector<stream_position>{2, 3});
}

TEST_CASE(
    "after an owner's death, batches that passed a late one are uploaded again unless they were acknowledged") {
  const small_plan plan(8, 1);
  ledger books(relaxed(4), plan, {0, 8});
  for (std::uint32_t w = 0; w < 4; ++w) books.worker_joined({w, 1}, 16);
  REQUIRE(uploads_without(books, {0}) == std::vector<stream_position>{1, 2, 3, 4});
  for (std::uint64_t upload = 1; upload <= 2; ++upload) {
    books.slot_released(upload);
    REQUIRE(books.acknowledged(upload)->position == upload);
  }
  books.owner_died();
  CHECK(uploads_without(books, {}) == std::vector<stream_position>{3, 4});
}

TEST_CASE("a worker may hold more leases even if the last sample of its last lease must be replaced") {
  const small_plan plan(64, 1);
  ledger books({3, 8, bad_sample_rule::replace}, plan, {0, 64});
  books.worker_joined(a1, 16);
  const auto loads = only<load_command>(books.advance());
  REQUIRE(loads.size() == 2);
  REQUIRE(books.loaded(success(loads[0])) == arrival::accepted);
  REQUIRE(books.loaded({loads[1].lease, 0, {{0, "broken"}}}) == arrival::accepted);
  CHECK(only<load_command>(books.advance()).size() == 4);
}

TEST_CASE("a worker that runs out of leases because there are none is not allowed to hold more") {
  const small_plan plan(64, 1);
  ledger books({}, plan, {0, 4});
  books.worker_joined(a1, 16);
  const auto first = only<load_command>(books.advance());
  REQUIRE(first.size() == 2);
  books.set_paused(true);
  for (const load_command& load : first) REQUIRE(books.loaded(success(load)) == arrival::accepted);
  books.set_paused(false);
  const auto last = only<load_command>(books.advance());
  CHECK(last.size() == 2);
  for (const load_command& load : last) REQUIRE(books.loaded(success(load)) == arrival::accepted);
  books.seek({4, 64});
  CHECK(only<load_command>(books.advance()).size() == 2);
}

TEST_CASE("batches loaded out of order are uploaded in order") {
  const small_plan plan(4, 1);
  ledger books({}, plan, {0, 4});
  books.worker_joined(a1, 2);
  books.worker_joined(b1, 2);
  const auto loads = only<load_command>(books.advance());
  REQUIRE(loads.size() == 4);
  REQUIRE(books.loaded(success(loads[2])) == arrival::accepted);
  REQUIRE(books.loaded(success(loads[1])) == arrival::accepted);
  CHECK(only<upload_command>(books.advance()).empty());
  REQUIRE(books.loaded(success(loads[0])) == arrival::accepted);
  const auto uploads = only<upload_command>(books.advance());
  REQUIRE(uploads.size() == 3);
  CHECK(uploads[0].position == 0);
  CHECK(uploads[1].position == 1);
  CHECK(uploads[2].position == 2);
}

TEST_CASE("a slot is leased again only after its copy is done") {
  const small_plan plan(4, 1);
  ledger books({}, plan, {0, 4});
  books.worker_joined(a1, 1);
  const auto first = only<load_command>(books.advance());
  REQUIRE(books.loaded(success(first[0])) == arrival::accepted);
  const auto commands = books.advance();
  REQUIRE(only<upload_command>(commands).size() == 1);
  CHECK(only<load_command>(commands).empty());
  books.slot_released(1);
  const auto second = only<load_command>(books.advance());
  REQUIRE(second.size() == 1);
  CHECK(second[0].lease.slot == first[0].lease.slot);
  CHECK(second[0].lease.generation == first[0].lease.generation + 1);
}

TEST_CASE("a batch that was being loaded when its worker died is leased again at once") {
  const small_plan plan(2, 1);
  ledger books({}, plan, {0, 2});
  books.worker_joined(a1, 1);
  books.worker_joined(b1, 2);
  auto loads = only<load_command>(books.advance());
  REQUIRE(loads.size() == 2);
  const load_command lost = loads[0].lease.holder == a1 ? loads[0] : loads[1];
  books.worker_died(a1, std::nullopt, "SIGKILL");
  loads = only<load_command>(books.advance());
  REQUIRE(loads.size() == 1);
  CHECK(loads[0].lease.holder == b1);
  CHECK(loads[0].position == lost.position);
  CHECK(loads[0].samples[0].attempt == 1);  // no sample was blamed
}

TEST_CASE("a batch that was finished when its worker died is uploaded, not loaded again") {
  const small_plan plan(2, 1);
  ledger books({}, plan, {0, 1});
  books.worker_joined(a1, 1);
  const auto loads = only<load_command>(books.advance());
  REQUIRE(books.loaded(success(loads[0])) == arrival::accepted);
  books.worker_died(a1, std::nullopt, "SIGKILL");
  const auto commands = books.advance();
  CHECK(only<upload_command>(commands).size() == 1);
  CHECK(only<load_command>(commands).empty());
}

TEST_CASE("a worker's death tells which of its batches an earlier death had lost, until they are loaded") {
  const small_plan plan(8, 1);
  ledger books({}, plan, {0, 4});
  books.worker_joined(a1, 2);
  REQUIRE(only<load_command>(books.advance()).size() == 2);
  CHECK(books.lost_before(0) == 0);
  books.worker_died(a1, std::nullopt, "SIGKILL");
  CHECK(books.lost_before(0) == 0);  // the dead worker holds nothing any more
  books.worker_joined(a2, 2);
  const auto loads = only<load_command>(books.advance());
  REQUIRE(loads.size() == 2);
  CHECK(books.lost_before(0) == 2);
  REQUIRE(books.loaded(success(loads[0])) == arrival::accepted);
  CHECK(books.lost_before(0) == 1);
}

TEST_CASE("a death is blamed on the sample in the flight recorder and not on the rest of its batch") {
  const small_plan plan(3, 3);
  ledger books({}, plan, {0, 1});
  books.worker_joined(a1, 2);
  const auto load = only<load_command>(books.advance()).at(0);
  const auto blamed = kill_on(books, load, 1);
  REQUIRE(blamed);
  CHECK(blamed->sample == 1);
  CHECK(blamed->attempt == 1);
  const auto again = only<load_command>(books.advance()).at(0);
  CHECK(again.samples == std::vector<planned_sample>{{0, 1}, {1, 2}, {2, 1}});
}

TEST_CASE(
    "work of a worker that cannot be killed goes to other workers, and its later exit changes nothing") {
  const small_plan plan(8, 2);
  ledger books({}, plan, {0, 4});
  books.worker_joined(a1, 1);
  const auto first = only<load_command>(books.advance());
  REQUIRE(books.worker_died(a1, mark_of(first[0], 1), "unkillable"));
  CHECK(books.loaded(success(first[0])) == arrival::late);
  books.worker_joined(b1, 1);
  const auto again = only<load_command>(books.advance());
  REQUIRE(again.size() == 1);
  CHECK(again[0].position == first[0].position);
  CHECK(again[0].samples[1].attempt == 2);
  CHECK_FALSE(books.worker_died(a1, mark_of(first[0], 1), "SIGKILL"));
  CHECK(only<load_command>(books.advance()).empty());
}

TEST_CASE("a death with a flight mark of an earlier lease is blamed on no sample") {
  const small_plan plan(2, 1);
  ledger books({}, plan, {0, 2});
  books.worker_joined(a1, 2);
  const auto loads = only<load_command>(books.advance());
  auto mark = mark_of(loads[0], 0);
  --mark.generation;
  CHECK_FALSE(books.worker_died(a1, mark, "SIGKILL"));
}

TEST_CASE("the second attempt runs on another worker when there is one") {
  const small_plan plan(1, 1);
  ledger books({}, plan, {0, 1});
  books.worker_joined(a1, 2);
  books.worker_joined(b1, 2);
  const auto load = only<load_command>(books.advance()).at(0);
  kill_on(books, load, 0);
  const auto again = only<load_command>(books.advance()).at(0);
  CHECK(again.lease.holder.worker != load.lease.holder.worker);
}

TEST_CASE("with one worker the second attempt runs on its next incarnation") {
  const small_plan plan(1, 1);
  ledger books({}, plan, {0, 1});
  books.worker_joined(a1, 2);
  const auto load = only<load_command>(books.advance()).at(0);
  kill_on(books, load, 0);
  CHECK(only<load_command>(books.advance()).at(0).lease.holder == a2);
}

TEST_CASE("the third attempt runs alone in the sacrificial worker; other workers continue meanwhile") {
  const small_plan plan(4, 2);
  ledger books({}, plan, {0, 2});
  books.worker_joined(a1, 2);
  auto loads = only<load_command>(books.advance());
  kill_on(books, loads[0], 1);
  loads = only<load_command>(books.advance());
  kill_on(books, loads[0], 1);
  CHECK(books.wants_sacrificial());
  loads = only<load_command>(books.advance());
  REQUIRE(loads.size() == 1);
  CHECK(loads[0].position == 1);  // a sample of the other batch
  books.worker_joined(helper1, 1, worker_kind::sacrificial);
  loads = only<load_command>(books.advance());
  REQUIRE(loads.size() == 1);
  CHECK(loads[0].lease.holder == helper1);
  CHECK(loads[0].samples == std::vector<planned_sample>{{1, 3}});

  SECTION("success there clears it") {
    REQUIRE(books.loaded(success(loads[0])) == arrival::accepted);
    CHECK_FALSE(books.wants_sacrificial());
    loads = only<load_command>(books.advance());
    REQUIRE(loads.size() == 1);
    CHECK(loads[0].samples == std::vector<planned_sample>{{0, 1}, {1, 1}});
  }
  SECTION("death there quarantines it, and its batch continues without it") {
    books.worker_died(helper1, mark_of(loads[0], 0), "SIGSEGV");
    CHECK_FALSE(books.wants_sacrificial());
    const auto commands = books.advance();
    const auto quarantined = only<sample_quarantined>(commands);
    REQUIRE(quarantined.size() == 1);
    CHECK(quarantined[0].sample == 1);
    CHECK(quarantined[0].attempts == 3);
    CHECK(only<load_command>(commands).at(0).samples == std::vector<planned_sample>{{0, 1}});
  }
  SECTION("a death there that is not blamed on it leaves it a suspect") {
    books.worker_died(helper1, std::nullopt, "SIGKILL");
    CHECK(books.wants_sacrificial());
    books.worker_joined({9, 2}, 1, worker_kind::sacrificial);
    CHECK(only<load_command>(books.advance()).at(0).samples == std::vector<planned_sample>{{1, 3}});
  }
  SECTION("an exception there makes it a failed sample, not a suspect") {
    REQUIRE(books.loaded({loads[0].lease, 0, {{0, "not a JPEG"}}}) == arrival::accepted);
    const auto commands = books.advance();
    CHECK(only<sample_failed>(commands).at(0).sample == 1);
    CHECK(only<load_command>(commands).at(0).samples == std::vector<planned_sample>{{0, 1}});
  }
}

TEST_CASE("if no slot is free, a lost batch takes the slot of the finished batch with the highest position") {
  const small_plan plan(8, 1);
  ledger books({}, plan, {0, 8});
  books.worker_joined(a1, 2);
  books.worker_joined(b1, 2);
  const auto loads = only<load_command>(books.advance());
  const load_command lost = loads[0];
  std::uint64_t highest = 0;
  for (const load_command& load : loads) {
    if (load.lease.holder == lost.lease.holder) continue;
    REQUIRE(books.loaded(success(load)) == arrival::accepted);
    highest = std::max(highest, load.position);
  }
  books.worker_died(lost.lease.holder, std::nullopt, "SIGKILL");
  const auto commands = books.advance();
  REQUIRE(only<batch_discarded>(commands).size() == 1);
  CHECK(only<batch_discarded>(commands)[0].position == highest);
  REQUIRE(only<load_command>(commands).size() == 1);
  CHECK(only<load_command>(commands)[0].position == lost.position);
  CHECK(only<load_command>(commands)[0].samples[0].attempt == 1);
}

TEST_CASE("late messages of a dead worker are dropped and counted") {
  const small_plan plan(2, 1);
  ledger books({}, plan, {0, 2});
  books.worker_joined(a1, 1);
  const auto load = only<load_command>(books.advance()).at(0);
  books.worker_died(a1, std::nullopt, "SIGKILL");
  CHECK(books.loaded(success(load)) == arrival::late);
  CHECK(books.stale_dropped() == 1);
}

TEST_CASE("an impossible report of a living worker is detected") {
  const small_plan plan(4, 2);
  ledger books({}, plan, {0, 2});
  books.worker_joined(a1, 2);
  const auto loads = only<load_command>(books.advance());
  load_report lie = success(loads[0]);
  SECTION("a slot that the worker does not have") {
    lie.lease.slot = 2;
  }
  SECTION("a future generation") {
    ++lie.lease.generation;
  }
  SECTION("more rows than samples") {
    ++lie.rows;
  }
  SECTION("a failure of a row that does not exist") {
    lie = {lie.lease, 1, {{2, "x"}}};
  }
  SECTION("the same failure twice") {
    lie = {lie.lease, 0, {{1, "x"}, {1, "x"}}};
  }
  SECTION("the same lease twice") {
    REQUIRE(books.loaded(lie) == arrival::accepted);
  }
  CHECK(books.loaded(lie) == arrival::impossible);
  CHECK(books.stale_dropped() == 1);
}

TEST_CASE("a failed sample leaves its batch short and is not tried again") {
  const small_plan plan(3, 3);
  ledger books({}, plan, {0, 1});
  books.worker_joined(a1, 1);
  const auto load = only<load_command>(books.advance()).at(0);
  REQUIRE(books.loaded({load.lease, 2, {{1, "truncated"}}}) == arrival::accepted);
  const auto commands = books.advance();
  CHECK(only<sample_failed>(commands).at(0).reason == "truncated");
  const auto upload = only<upload_command>(commands).at(0);
  CHECK(upload.samples == std::vector<std::uint64_t>{0, 2});
  books.slot_released(upload.upload);
  const auto done = books.acknowledged(upload.upload);
  REQUIRE(done);
  CHECK(done->delivered == 2);
  CHECK(done->failed == 1);
  CHECK(books.finished());
}

TEST_CASE("a batch in which all samples failed is delivered with 0 rows") {
  const small_plan plan(1, 1);
  ledger books({}, plan, {0, 1});
  books.worker_joined(a1, 1);
  const auto load = only<load_command>(books.advance()).at(0);
  REQUIRE(books.loaded({load.lease, 0, {{0, "empty file"}}}) == arrival::accepted);
  CHECK(only<upload_command>(books.advance()).at(0).samples.empty());
}

TEST_CASE("under replace, another sample takes the row of a failed one") {
  const small_plan plan(9, 3);
  ledger books({3, 8, bad_sample_rule::replace}, plan, {0, 1});
  books.worker_joined(a1, 1);
  const auto load = only<load_command>(books.advance()).at(0);
  REQUIRE(books.loaded({load.lease, 2, {{1, "truncated"}}}) == arrival::accepted);
  const auto again = only<load_command>(books.advance()).at(0);
  REQUIRE(again.samples.size() == 3);
  CHECK(again.samples[1].sample == plan.replacement(0, 1, 1));
  REQUIRE(books.loaded({again.lease, 3, {}}) == arrival::accepted);
  const auto done = books.acknowledged(only<upload_command>(books.advance()).at(0).upload);
  REQUIRE(done);
  CHECK(done->delivered == 3);
  CHECK(done->failed == 0);
  CHECK(done->replaced == 1);
}

TEST_CASE("under fail, the first failed sample ends the run and is named") {
  const small_plan plan(3, 3);
  ledger books({3, 8, bad_sample_rule::fail}, plan, {0, 1});
  books.worker_joined(a1, 1);
  const auto load = only<load_command>(books.advance()).at(0);
  REQUIRE(books.loaded({load.lease, 2, {{1, "truncated"}}}) == arrival::accepted);
  const auto commands = books.advance();
  REQUIRE(only<give_up>(commands).size() == 1);
  CHECK(only<give_up>(commands)[0].reason.message == "sample 1: truncated (on_bad_sample = \"fail\")");
}

TEST_CASE("more quarantined samples than the limit end the run") {
  const small_plan plan(4, 1);
  ledger books({1, 1, bad_sample_rule::skip}, plan, {0, 4});
  books.worker_joined(a1, 2);
  kill_on(books, only<load_command>(books.advance()).at(0), 0);
  CHECK(only<give_up>(books.advance()).empty());
  ledger harsh({1, 0, bad_sample_rule::skip}, plan, {0, 4});
  harsh.worker_joined(a1, 2);
  kill_on(harsh, only<load_command>(harsh.advance()).at(0), 0);
  const auto commands = harsh.advance();
  REQUIRE(only<give_up>(commands).size() == 1);
  CHECK(only<give_up>(commands)[0].reason.code == errc::quarantine_full);
  CHECK(only<load_command>(commands).empty());
}

TEST_CASE("attempts are counted per epoch, and quarantine is permanent") {
  const small_plan plan(2, 1);
  ledger books({}, plan, {0, 4});
  books.quarantine_known(0);
  books.worker_joined(a1, 1);
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    auto load = only<load_command>(books.advance()).at(0);
    CHECK(load.samples.empty());  // sample 0 is skipped in both epochs
    REQUIRE(books.loaded(success(load)) == arrival::accepted);
    auto upload = only<upload_command>(books.advance()).at(0);
    books.slot_released(upload.upload);
    CHECK(books.acknowledged(upload.upload)->quarantined == 1);
    load = only<load_command>(books.advance()).at(0);
    CHECK(load.samples == std::vector<planned_sample>{{1, 1}});
    const worker_ref who = load.lease.holder;
    books.worker_died(who, mark_of(load, 0), "SIGSEGV");
    books.worker_joined({0, who.incarnation + 1}, 1);
    load = only<load_command>(books.advance()).at(0);
    CHECK(load.samples == std::vector<planned_sample>{{1, 2}});
    REQUIRE(books.loaded(success(load)) == arrival::accepted);
    upload = only<upload_command>(books.advance()).at(0);
    books.slot_released(upload.upload);
    CHECK(books.acknowledged(upload.upload)->delivered == 1);
  }
  CHECK(books.finished());
}

TEST_CASE("after the owner's death all unacknowledged batches are uploaded again, in order") {
  const small_plan plan(3, 1);
  ledger books({}, plan, {0, 3});
  books.worker_joined(a1, 2);
  books.worker_joined(b1, 1);
  for (const load_command& load : only<load_command>(books.advance())) {
    REQUIRE(books.loaded(success(load)) == arrival::accepted);
  }
  REQUIRE(only<upload_command>(books.advance()).size() == 3);
  books.slot_released(1);
  books.acknowledged(1);
  books.slot_released(2);  // on the device, not acknowledged: must be loaded again
  books.owner_died();
  auto commands = books.advance();
  REQUIRE(only<load_command>(commands).size() == 1);
  CHECK(only<load_command>(commands)[0].position == 1);
  CHECK(only<upload_command>(commands).empty());  // position 2 waits for position 1
  REQUIRE(books.loaded(success(only<load_command>(commands)[0])) == arrival::accepted);
  const auto uploads = only<upload_command>(books.advance());
  REQUIRE(uploads.size() == 2);
  CHECK(uploads[0].position == 1);
  CHECK(uploads[1].position == 2);
  books.slot_released(3);  // a late message from the dead owner
  CHECK(books.stale_dropped() == 1);
}

TEST_CASE("a draining worker finishes its leases and gets no new ones") {
  const small_plan plan(4, 1);
  ledger books({}, plan, {0, 4});
  books.worker_joined(a1, 1);
  const auto load = only<load_command>(books.advance()).at(0);
  books.worker_drains(a1);
  CHECK(books.leases_of(0) == 1);
  REQUIRE(books.loaded(success(load)) == arrival::accepted);
  CHECK(books.leases_of(0) == 0);
  REQUIRE(only<upload_command>(books.advance()).size() == 1);
  books.slot_released(1);
  CHECK(only<load_command>(books.advance()).empty());
}

TEST_CASE("a paused ledger gives no leases but uploads finished batches") {
  const small_plan plan(4, 1);
  ledger books({}, plan, {0, 4});
  books.worker_joined(a1, 1);
  const auto load = only<load_command>(books.advance()).at(0);
  books.set_paused(true);
  REQUIRE(books.loaded(success(load)) == arrival::accepted);
  CHECK(only<upload_command>(books.advance()).size() == 1);
  books.slot_released(1);
  CHECK(books.advance().empty());
  books.set_paused(false);
  CHECK(only<load_command>(books.advance()).size() == 1);
}

TEST_CASE("after a seek old leases and copies are ignored, and their slots serve the new position") {
  const small_plan plan(8, 1);
  ledger books({}, plan, {0, 4});
  books.worker_joined(a1, 2);
  books.worker_joined(b1, 1);
  const auto before = only<load_command>(books.advance());
  REQUIRE(books.loaded(success(before[0])) == arrival::accepted);  // this batch will be uploading
  REQUIRE(books.loaded(success(before[2])) == arrival::accepted);  // stays loaded
  REQUIRE(only<upload_command>(books.advance()).size() == 1);
  books.seek({6, 8});
  auto loads = only<load_command>(books.advance());
  REQUIRE(loads.size() == 1);  // only the loaded batch's slot is free
  CHECK(loads[0].position == 6);
  REQUIRE(books.loaded(success(before[1])) == arrival::accepted);
  books.slot_released(1);
  loads = only<load_command>(books.advance());
  REQUIRE(loads.size() == 1);
  CHECK(loads[0].position == 7);
  CHECK_FALSE(books.acknowledged(1));
}

TEST_CASE("a batch that kills owners is delivered with 0 rows, whatever the rule for bad samples") {
  for (const bad_sample_rule rule :
       {bad_sample_rule::skip, bad_sample_rule::replace, bad_sample_rule::fail}) {
    CAPTURE(static_cast<int>(rule));
    const small_plan plan(9, 3);
    ledger books({3, 8, rule}, plan, {0, 3});
    books.worker_joined(a1, 1);
    const auto first = only<load_command>(books.advance());
    REQUIRE(books.loaded(success(first[0])) == arrival::accepted);
    const auto killing = only<upload_command>(books.advance());
    REQUIRE(killing.size() == 1);
    books.slot_released(killing[0].upload);
    books.owner_died();
    CHECK(books.leave_out(0, "it has killed 2 owners") == std::vector<std::uint64_t>{0, 1, 2});
    const auto commands = books.advance();
    CHECK(only<sample_failed>(commands).size() == 3);
    CHECK(only<give_up>(commands).empty());
    const auto again = only<load_command>(commands);
    REQUIRE(again.size() == 1);
    CHECK(again[0].position == 0);
    CHECK(again[0].samples.empty());
    REQUIRE(books.loaded(success(again[0])) == arrival::accepted);
    const auto uploads = only<upload_command>(books.advance());
    REQUIRE(uploads.size() == 1);
    const auto done = books.acknowledged(uploads[0].upload);
    REQUIRE(done);
    CHECK(done->delivered == 0);
    CHECK(done->failed == 3);
  }
}

TEST_CASE("a skipped batch changes no other batch, so a run resumed after it delivers the same batches") {
  // The first candidate for a replacement is always sample 0.
  class first_sample_replaces final : public small_plan {
   public:
    using small_plan::small_plan;
    [[nodiscard]] std::uint64_t replacement(stream_position, std::uint32_t,
                                            std::uint32_t number) const override {
      return number - 1;
    }
  };
  const first_sample_replaces plan(4, 2);
  const auto second_batch = [](ledger& books) {
    const auto broken = only<load_command>(books.advance()).at(0);
    REQUIRE(broken.position == 1);
    REQUIRE(books.loaded({broken.lease, 1, {{0, "broken"}}}) == arrival::accepted);
    return only<load_command>(books.advance()).at(0).samples;
  };

  ledger whole({3, 8, bad_sample_rule::replace}, plan, {0, 2});
  whole.worker_joined(a1, 1);
  const auto first = only<load_command>(whole.advance()).at(0);
  REQUIRE(whole.loaded(success(first)) == arrival::accepted);
  whole.slot_released(only<upload_command>(whole.advance()).at(0).upload);
  whole.owner_died();
  whole.leave_out(0, "it has killed 2 owners");
  const auto empty = only<load_command>(whole.advance()).at(0);
  REQUIRE(whole.loaded(success(empty)) == arrival::accepted);
  const auto upload = only<upload_command>(whole.advance()).at(0).upload;
  whole.slot_released(upload);
  REQUIRE(whole.acknowledged(upload));

  ledger resumed({3, 8, bad_sample_rule::replace}, plan, {1, 2});
  resumed.worker_joined(a1, 1);
  const std::vector<planned_sample> with_a_replacement{{0, 1}, {3, 1}};
  CHECK(second_batch(whole) == with_a_replacement);
  CHECK(second_batch(resumed) == with_a_replacement);
}

TEST_CASE("when the sacrificial worker cannot start, the suspect is quarantined and its batch continues") {
  const small_plan plan(2, 2);
  ledger books({}, plan, {0, 1});
  books.worker_joined(a1, 2);
  kill_on(books, only<load_command>(books.advance())[0], 0);
  kill_on(books, only<load_command>(books.advance())[0], 0);
  CHECK(only<load_command>(books.advance()).empty());
  REQUIRE(books.wants_sacrificial());
  books.cannot_try_alone("worker 9 ended with exit 3");
  CHECK_FALSE(books.wants_sacrificial());
  const auto commands = books.advance();
  const auto lost = only<sample_quarantined>(commands);
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].attempts == 2);
  CHECK(lost[0].causes.back() == "could not be tried alone: worker 9 ended with exit 3");
  const auto loads = only<load_command>(commands);
  REQUIRE(loads.size() == 1);
  CHECK(loads[0].samples == std::vector<planned_sample>{{1, 1}});
}

TEST_CASE("until a place has all its memory, only its first slots are leased, and its batches are not uploaded") {
  const small_plan plan(12, 2);
  ledger books({.leases_ahead = 6}, plan, {0, 6});
  books.place_grows(0, 2);
  books.worker_joined(a1, 6);
  const auto loads = only<load_command>(books.advance());
  REQUIRE(loads.size() == 2);
  for (const load_command& load : loads) {
    CHECK(load.lease.slot < 2);
    CHECK(books.loaded(success(load)) == arrival::accepted);
  }
  CHECK(books.advance().empty());

  books.place_complete(0);
  const auto now = books.advance();
  CHECK(only<upload_command>(now).size() == 2);
  CHECK(only<load_command>(now).size() == 4);
}

TEST_CASE("a worker that is replaced before its place has all its memory gets no slot without memory") {
  const small_plan plan(12, 2);
  ledger books({.leases_ahead = 6}, plan, {0, 6});
  books.place_grows(0, 2);
  books.worker_joined(a1, 6);
  REQUIRE(only<load_command>(books.advance()).size() == 2);
  static_cast<void>(books.worker_died(a1, std::nullopt, "SIGKILL"));
  books.worker_joined(a2, 6);
  CHECK(only<load_command>(books.advance()).size() == 2);
}

TEST_CASE("a batch of a place that has all its memory waits for an earlier one of a place that has not") {
  const small_plan plan(12, 2);
  ledger books({}, plan, {0, 6});
  books.place_grows(0, 2);
  books.worker_joined(a1, 3);
  books.worker_joined(b1, 3);
  for (const load_command& load : only<load_command>(books.advance())) CHECK(books.loaded(success(load)) == arrival::accepted);
  CHECK(only<upload_command>(books.advance()).empty());
  books.place_complete(0);
  CHECK(only<upload_command>(books.advance()).size() == 4);
}
