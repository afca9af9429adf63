// Which worker gets which job, one rule per test. Combinations are tested in job_book_model_test.cpp.
#include "tests/runtime/schedule/job_pool.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::schedule;
using namespace penstock::testing;

using jobs = std::vector<job_id>;

// ---- bundles ----------------------------------------------------------------------------------------------

TEST_CASE("while a function's duration is unknown, each of its jobs is sent alone") {
  small_pool p;
  p.submit_many(5);
  p.book.worker_joined(a1, 4);
  const auto orders = p.leases();
  REQUIRE(orders.size() == 2);  // the current job and one ahead
  CHECK(jobs_of(orders[0]) == jobs{1});
  CHECK(jobs_of(orders[1]) == jobs{2});
  CHECK(p.book.waiting() == 3);
  CHECK(p.book.rows_of(0) == 2);
}

TEST_CASE("short jobs are sent in bundles of at most the target amount of work") {
  small_pool p;
  p.teach(300us);
  p.book.worker_joined(a1, 1);
  p.submit_many(10);
  CHECK(jobs_of(p.lease()) == jobs{2, 3, 4});
}

TEST_CASE("a bundle has at most as many rows as a lease may have") {
  small_pool p;
  p.teach(1us);
  p.book.worker_joined(a1, 1);
  p.submit_many(10);
  CHECK(p.lease().rows.size() == small_slots.rows_max);
}

TEST_CASE("a long job is never bundled") {
  small_pool p;
  p.teach(10us, 0);
  p.teach(5ms, 1);
  p.book.worker_joined(a1, 4);
  p.submit();
  p.submit({.function = 1});
  p.submit();
  const auto orders = p.leases();
  REQUIRE(orders.size() >= 2);
  CHECK(jobs_of(orders[0]) == jobs{3});
  CHECK(jobs_of(orders[1]) == jobs{4});
}

TEST_CASE(
    "a job whose result stays in the slot uses the slot alone until the result is freed, however small it is") {
  small_pool p;
  p.teach(10us);
  p.book.worker_joined(a1, 2);
  p.submit();
  p.submit({.holds_slot = true});
  p.submit();
  const auto orders = p.leases();
  REQUIRE(orders.size() == 2);
  CHECK(jobs_of(orders[1]) == jobs{3});
  (void)p.book.reported(table_of(orders[1], 1));
  const auto ends = only<settle_job>(p.go());
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].keeps_slot);
  CHECK(p.leases().empty());
  p.book.result_gone(orders[1].lease);
  CHECK(jobs_of(p.lease()) == jobs{4});
}

TEST_CASE("arguments of a bundle use at most an eighth of the slot, and a job alone may fill it") {
  small_pool p;
  p.teach(1us);
  p.book.worker_joined(a1, 1);
  p.submit({.argument_bytes = 192});
  p.submit({.argument_bytes = 320});
  p.submit({.argument_bytes = 64});
  const lease_jobs two = p.lease();
  CHECK(jobs_of(two) == jobs{2, 3});  // 192 + 320 = 512 = 1/8 of 4096
  p.submit({.argument_bytes = 4096 - 128});
  CHECK(p.book.reported(table_of(two, 2)) == job_arrival::accepted);
  const lease_jobs small = p.lease();
  CHECK(jobs_of(small) == jobs{4});
  CHECK(p.book.reported(table_of(small, 1)) == job_arrival::accepted);
  CHECK(jobs_of(p.lease()) == jobs{5});
}

TEST_CASE("a few jobs are split evenly between the idle workers") {
  small_pool p;
  p.teach(1us);
  p.book.worker_joined(a1, 1);
  p.book.worker_joined(b1, 1);
  p.submit_many(5);
  const auto orders = p.leases();
  REQUIRE(orders.size() == 2);
  CHECK(orders[0].rows.size() == 3);
  CHECK(orders[1].rows.size() == 2);
}

TEST_CASE("idle workers get leases before any worker is leased work ahead") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.submit();
  REQUIRE(p.lease().lease.holder == a1);
  p.book.worker_joined(b1, 2);
  p.submit();
  CHECK(p.lease().lease.holder == b1);
}

TEST_CASE("a worker gets more leases ahead while its work is below the target") {
  small_pool p;
  p.teach(50us);
  p.book.worker_joined(a1, 4);
  p.submit_many(100);
  CHECK(p.leases().size() == 3);  // 8 rows of 50 us each: the third passes 1 ms
}

TEST_CASE("the estimate of a function follows the duration of its jobs") {
  small_pool p;
  p.teach(5ms);
  p.book.worker_joined(a1, 1);
  p.submit_many(60);
  std::size_t largest = 0;
  for (int i = 0; i < 50; ++i) {
    const auto orders = p.leases();
    if (orders.empty()) break;
    largest = std::max(largest, orders[0].rows.size());
    REQUIRE(p.book.reported(table_of(orders[0], orders[0].rows.size(), row_at::waiting, 10us)) ==
            job_arrival::accepted);
  }
  CHECK(largest > 1);
}

TEST_CASE("a paused book gives no leases, and continues where it stopped") {
  small_pool p;
  p.book.worker_joined(a1, 1);
  p.book.set_paused(true);
  p.submit();
  CHECK(p.leases().empty());
  p.book.set_paused(false);
  CHECK(p.leases().size() == 1);
}

// ---- moving work ------------------------------------------------------------------------------------------

TEST_CASE(
    "when no job waits, an idle worker takes over the later half of another worker's rows that have not started") {
  small_pool p;
  p.teach(1us);
  p.book.worker_joined(a1, 1);
  p.submit_many(6);
  const lease_jobs order = p.lease();
  REQUIRE(order.rows.size() == 6);
  p.book.worker_joined(b1, 1);
  const auto asked = only<revoke_row>(p.go());
  REQUIRE(asked.size() == 3);  // asks for half of rows 1 .. 5, because row 0 counts as started
  CHECK(asked[0].row == 3);
  CHECK(asked[2].row == 5);
  CHECK(asked[2].job == 7);
  p.book.row_revoked(order.lease, 4);
  p.book.row_revoked(order.lease, 5);
  const lease_jobs moved = p.lease();
  CHECK(moved.lease.holder == b1);
  CHECK(jobs_of(moved) == jobs{6, 7});
  CHECK_FALSE(moved.rows[0].first);
  CHECK(p.book.rows_of(0) == 4);
}

TEST_CASE("rows of leases ahead are moved before those of the current lease") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.submit_many(2);
  const auto orders = p.leases();
  REQUIRE(orders.size() == 2);
  p.book.worker_joined(b1, 1);
  const auto asked = only<revoke_row>(p.go());
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].lease == orders[1].lease);
  p.book.row_revoked(asked[0].lease, 0);
  CHECK(p.lease().lease.holder == b1);
}

TEST_CASE("no row is revoked twice for moving, and a worker keeps its only row") {
  small_pool p;
  p.teach(1us);
  p.book.worker_joined(a1, 1);
  p.submit_many(2);
  (void)p.go();
  p.book.worker_joined(b1, 1);
  CHECK(only<revoke_row>(p.go()).size() == 1);
  CHECK(p.go().empty());
}

TEST_CASE("no row is moved while a job waits") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.submit_many(2);
  (void)p.go();
  p.book.worker_joined(b1, 1);
  p.submit();
  CHECK(only<revoke_row>(p.go()).empty());
}

TEST_CASE("a slot whose last rows were revoked is leased again only when its worker has passed them") {
  small_pool p;
  p.teach(1us);
  p.book.worker_joined(a1, 1);
  p.submit_many(3);
  const lease_jobs order = p.lease();
  REQUIRE(order.rows.size() == 3);
  p.book.worker_drains(a1, true);
  REQUIRE(only<revoke_row>(p.go()).size() == 3);
  p.book.row_revoked(order.lease, 2);
  REQUIRE(p.book.seen(table_of(order, 2)) == job_arrival::accepted);  // the session reads the table without a report from the worker
  CHECK(p.book.rows_of(0) == 0);
  auto late = table_of(order, 2, row_at::revoked);
  CHECK(p.book.reported(late) == job_arrival::accepted);  // so the lease was still current
  CHECK(p.book.reported(late) == job_arrival::late);
}

// ---- slots ------------------------------------------------------------------------------------------------

TEST_CASE("a slot with kept results is leased again when its last result is freed") {
  small_pool p;
  p.teach(1us);
  p.book.worker_joined(a1, 1);
  p.submit_many(2);
  const lease_jobs order = p.lease();
  REQUIRE(p.book.reported(kept(order)) == job_arrival::accepted);
  p.submit();
  CHECK(p.leases().empty());
  p.book.result_gone(order.lease);
  CHECK(p.leases().empty());
  p.book.result_gone(order.lease);
  const lease_jobs next = p.lease();
  CHECK(next.lease.generation == order.lease.generation + 1);
  p.book.result_gone(order.lease);  // a late report
  CHECK(p.book.reported(table_of(next, 1)) == job_arrival::accepted);
}

TEST_CASE("if a worker has no free slot, one is emptied, and another one if the first stays in use") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.submit_many(2);
  const auto orders = p.leases();
  REQUIRE(orders.size() == 2);
  REQUIRE(p.book.reported(kept(orders[0])) == job_arrival::accepted);
  REQUIRE(p.book.reported(kept(orders[1])) == job_arrival::accepted);
  CHECK(only<empty_slot>(p.go()).empty());  // no job waits
  p.submit();
  CHECK(only<empty_slot>(p.go()).empty());  // the caller may be about to take the results
  REQUIRE(p.book.next_look() == p.now + small_slots.room_patience);
  p.now += small_slots.room_patience;
  const auto first = only<empty_slot>(p.go());
  const auto second = only<empty_slot>(p.go());
  REQUIRE(first.size() == 1);
  REQUIRE(second.size() == 1);
  CHECK(first[0].lease == orders[0].lease);
  CHECK(second[0].lease == orders[1].lease);
  CHECK(p.go().empty());
  p.book.result_gone(second[0].lease);
  CHECK(p.lease().lease.slot == orders[1].lease.slot);
}

TEST_CASE("a slot whose results are freed in time is not emptied") {
  small_pool p;
  p.book.worker_joined(a1, 1);
  p.submit();
  const lease_jobs order = p.lease();
  REQUIRE(p.book.reported(kept(order)) == job_arrival::accepted);
  p.submit();
  CHECK(p.leases().empty());
  REQUIRE(p.book.next_look());
  p.book.result_gone(order.lease);
  p.now += 1s;
  const auto said = p.go();
  CHECK(only<empty_slot>(said).empty());
  CHECK(only<lease_jobs>(said).size() == 1);
  CHECK_FALSE(p.book.next_look());
}

TEST_CASE("kept results outlive their worker, and its successor gets their slots only when they are freed") {
  small_pool p;
  p.book.worker_joined(a1, 1);
  p.submit();
  const lease_jobs order = p.lease();
  p.submit();
  p.book.worker_died(a1, {kept(order)}, "SIGKILL", job_death::of_the_job, p.now);
  p.book.worker_joined(a2, 1);
  const auto said = p.go();
  CHECK(only<settle_job>(said).size() == 1);
  CHECK(only<lease_jobs>(said).empty());
  p.now += small_slots.room_patience;
  const auto later = only<empty_slot>(p.go());
  REQUIRE(later.size() == 1);
  CHECK(later[0].lease == order.lease);
  p.book.result_gone(order.lease);
  CHECK(p.lease().lease.holder == a2);
}

// ---- fresh jobs -------------------------------------------------------------------------------------------

TEST_CASE("a fresh job runs alone in a process that has had no other job") {
  small_pool p;
  p.teach(1us);
  p.book.worker_joined(a1, 2);
  p.submit({.fresh = true});
  p.submit();
  const auto orders = p.leases();
  REQUIRE(orders.size() == 2);
  CHECK(jobs_of(orders[0]) == jobs{2});
  CHECK(jobs_of(orders[1]) == jobs{3});
}

TEST_CASE("if every process has run a job, one idle process is replaced and gets no job meanwhile") {
  small_pool p;
  p.book.worker_joined(a1, 1);
  p.book.worker_joined(b1, 1);
  p.submit_many(2);
  for (const lease_jobs& order : p.leases())
    REQUIRE(p.book.reported(table_of(order, 1)) == job_arrival::accepted);
  p.submit({.fresh = true});
  const auto asked = only<refresh_worker>(p.go());
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].who == a1);
  CHECK(p.go().empty());
  p.submit();
  const lease_jobs other = p.lease();
  CHECK(other.lease.holder == b1);  // other workers continue
  p.book.worker_died(a1, {}, "replaced", job_death::unrelated, p.now);
  CHECK(p.go().empty());
  p.book.worker_joined(a2, 1);
  CHECK(jobs_of(p.lease()) == jobs{3});
}

TEST_CASE("the book waits ten seconds for a replaced process that does not return") {
  small_pool p;
  p.book.worker_joined(a1, 1);
  p.book.worker_joined(b1, 1);
  p.submit_many(2);
  for (const lease_jobs& order : p.leases())
    REQUIRE(p.book.reported(table_of(order, 1)) == job_arrival::accepted);
  p.submit({.fresh = true});
  REQUIRE(only<refresh_worker>(p.go()).size() == 1);
  p.book.worker_died(a1, {}, "replaced", job_death::unrelated, p.now);
  p.now += 9s;
  CHECK(p.go().empty());
  p.now += 1s;
  const auto asked = only<refresh_worker>(p.go());
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].who == b1);
}

TEST_CASE("if no worker is idle, one is emptied for the fresh job whose turn it is, and no other") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.book.worker_joined(b1, 2);
  p.submit_many(2);
  const auto orders = p.leases();
  REQUIRE(orders.size() == 2);
  p.submit({.fresh = true});
  p.submit({.fresh = true});
  p.submit_many(4);
  const auto ahead = p.leases();
  REQUIRE(ahead.size() == 1);
  CHECK(ahead[0].lease.holder == b1);
  REQUIRE(p.book.reported(table_of(orders[0], 1)) == job_arrival::accepted);
  const auto said = p.go();
  CHECK(only<lease_jobs>(said).empty());
  REQUIRE(only<refresh_worker>(said).size() == 1);
  CHECK(only<refresh_worker>(said)[0].who == a1);
}

TEST_CASE("no process is replaced for a fresh job before that job's turn") {
  small_pool p;
  p.book.worker_joined(a1, 1);
  p.submit();
  lease_jobs order = p.lease();
  p.submit_many(2);
  p.submit({.fresh = true});
  for (job_id job = 2; job <= 3; ++job) {
    REQUIRE(p.book.reported(table_of(order, 1, row_at::waiting, 1ms)) == job_arrival::accepted);
    order = p.lease();
    CHECK(jobs_of(order) == jobs{job});
  }
  REQUIRE(p.book.reported(table_of(order, 1)) == job_arrival::accepted);
  CHECK(only<refresh_worker>(p.go()).size() == 1);
}

TEST_CASE("a reservation ends with the fresh job for which it was made") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.submit();
  (void)p.lease();
  const job_id fresh = p.submit({.fresh = true});
  p.submit();
  CHECK(p.leases().empty());
  CHECK(p.book.cancel(fresh) == cancelled::before_it_began);
  CHECK(jobs_of(p.lease()) == jobs{3});
}

// ---- places -----------------------------------------------------------------------------------------------

TEST_CASE("a job with a place waits for that worker, busy or not yet started, and is not moved away") {
  small_pool p;
  p.teach(10us);
  p.book.worker_joined(a1, 2);
  p.submit({.place = 1});
  CHECK(p.leases().empty());
  p.book.worker_joined(b1, 2);
  const auto first = p.lease();
  CHECK(first.lease.holder == b1);
  p.submit({.place = 1});
  p.submit({.place = 1});
  const auto more = p.leases();
  REQUIRE(more.size() == 1);  // for the worker's second slot
  CHECK(more[0].lease.holder == b1);
  CHECK(only<revoke_row>(p.go()).empty());  // no row is revoked, although worker 0 is idle
  CHECK(p.book.waiting() == 1);
}

TEST_CASE("a job with a place that killed its worker is tried again by the replacement") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.book.worker_joined(b1, 2);
  const job_id job = p.submit({.place = 1});
  p.crash(p.lease());
  const auto again = p.lease();
  CHECK(again.lease.holder == worker_ref{1, 2});
  CHECK(jobs_of(again) == jobs{job});
}

TEST_CASE("a job moves elsewhere if its place takes no work for as long as the job's patience") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.book.worker_joined(b1, 2);
  p.book.worker_drains(b1);
  const job_id job = p.submit({.place = 1});
  CHECK(p.leases().empty());
  REQUIRE(p.book.next_look() == p.now + small_slots.place_patience);
  p.now = *p.book.next_look();
  CHECK(jobs_of(p.lease()) == jobs{job});
  const job_id next = p.submit({.place = 1});
  CHECK(p.leases().empty());
  CHECK(p.book.cancel(next) == cancelled::before_it_began);
}

TEST_CASE("a job with a place waits longer for a worker that has never been ready") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  const job_id job = p.submit({.place = 1});
  CHECK(p.leases().empty());
  p.now += small_slots.place_patience;  // the worker's program has a long startup
  CHECK(p.leases().empty());
  REQUIRE(p.book.next_look() == p.now - small_slots.place_patience + small_slots.first_place_patience);
  p.now = *p.book.next_look();
  CHECK(jobs_of(p.lease()) == jobs{job});
}
