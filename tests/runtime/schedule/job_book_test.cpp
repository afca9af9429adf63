// Outcomes of jobs: results, cancelling, late and impossible messages; one rule per test. Deaths are in job_deaths_test.cpp, leasing in
// job_leasing_test.cpp, combinations in job_book_model_test.cpp.
#include "tests/runtime/schedule/job_pool.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::schedule;
using namespace penstock::testing;

using jobs = std::vector<job_id>;
using causes = std::vector<std::string>;

// ---- results ----------------------------------------------------------------------------------------------

TEST_CASE("a finished row settles its job once, with the place of its result") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 3);
  REQUIRE(p.book.reported(table_of(order, 2)) == job_arrival::accepted);
  REQUIRE(p.book.reported(table_of(order, 2)) == job_arrival::accepted);
  const auto done = only<settle_job>(p.go());
  REQUIRE(done.size() == 2);
  CHECK(done[1].job == 3);
  CHECK(done[1].how == job_end::result);
  CHECK(done[1].attempts == 1);
  REQUIRE(done[1].at);
  CHECK(done[1].at->lease == order.lease);
  CHECK(done[1].at->row == 1);
  CHECK(p.book.unsettled() == 1);
}

TEST_CASE("exceptions and oversized results settle their jobs, with their row") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 2);
  auto table = table_of(order, 2);
  table.rows[0].at = row_at::failed;
  table.rows[1].at = row_at::too_large;
  REQUIRE(p.book.reported(table) == job_arrival::accepted);
  const auto done = only<settle_job>(p.go());
  REQUIRE(done.size() == 2);
  CHECK(done[0].how == job_end::exception);
  CHECK(done[1].how == job_end::too_large);
  CHECK(done[1].at->row == 1);
}

TEST_CASE("a reading may omit rows that were read before") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 3);
  REQUIRE(p.book.reported(table_of(order, 2)) == job_arrival::accepted);
  const auto open = p.book.leases_of(a1);
  REQUIRE(open.size() == 1);
  CHECK(open[0].rows == 3);
  CHECK(open[0].settled == 2);
  lease_reading rest{order.lease, {{row_at::finished, false, {}, 1us}}, 2};
  CHECK(p.book.reported(rest) == job_arrival::accepted);
  CHECK(p.book.unsettled() == 0);
}

// ---- late and impossible messages -------------------------------------------------------------------------

TEST_CASE("reports of a dead incarnation are late, and so are reports of an ended lease") {
  small_pool p;
  p.book.worker_joined(a1, 1);
  p.submit_many(2);
  const lease_jobs first = p.lease();
  REQUIRE(p.book.reported(table_of(first, 1)) == job_arrival::accepted);
  CHECK(p.book.reported(table_of(first, 1)) == job_arrival::late);
  const lease_jobs second = p.lease();
  CHECK(p.book.reported(table_of(first, 1)) == job_arrival::late);
  p.book.worker_died(a1, {}, "SIGKILL", job_death::unrelated, p.now);
  CHECK(p.book.reported(table_of(second, 1)) == job_arrival::late);
  CHECK(p.book.stale_dropped() == 3);
  CHECK(p.book.unsettled() == 1);
}

TEST_CASE("a living worker's report about a lease that it never had is impossible") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 2);
  lease_jobs other = order;
  other.lease.slot = 1;
  CHECK(p.book.reported(table_of(other, 1)) == job_arrival::impossible);
  other = order;
  ++other.lease.generation;
  CHECK(p.book.reported(table_of(other, 1)) == job_arrival::impossible);
  other.lease.generation = order.lease.generation - 1;
  CHECK(p.book.reported(table_of(other, 1)) == job_arrival::impossible);
  auto longer = table_of(order, 1);
  longer.rows.resize(3);
  CHECK(p.book.reported(longer) == job_arrival::impossible);
  CHECK(p.book.stale_dropped() == 4);
  CHECK(p.book.unsettled() == 2);
}

TEST_CASE("a row whose state goes backwards is impossible, and the whole reading is discarded") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 3);
  REQUIRE(p.book.reported(table_of(order, 1, row_at::begun)) == job_arrival::accepted);
  const row_at was[] = {row_at::finished, row_at::begun, row_at::waiting};
  for (const row_at wrong :
       {row_at::waiting, row_at::begun, row_at::failed, row_at::revoked, row_at::unreadable}) {
    auto table = table_of(order, 3);
    table.rows[0].at = wrong;
    CHECK(p.book.reported(table) == job_arrival::impossible);
  }
  for (std::size_t i = 1; i < 3; ++i) {
    for (const row_at wrong : {row_at::waiting, row_at::revoked, row_at::unreadable}) {
      if (wrong == was[i]) continue;
      auto table = table_of(order, 3);
      table.rows[i].at = wrong;
      CHECK(p.book.reported(table) == job_arrival::impossible);
    }
  }
  CHECK(only<settle_job>(p.go()).size() == 1);
  CHECK(p.book.unsettled() == 2);
}

TEST_CASE("a revoked row does not count as one that its worker may have started") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 2);
  p.book.row_revoked(order.lease, 1);
  CHECK(p.book.reported(table_of(order, 2)) == job_arrival::impossible);
  CHECK(p.book.reported(table_of(order, 1, row_at::revoked)) == job_arrival::accepted);
}

// ---- cancelling -------------------------------------------------------------------------------------------

TEST_CASE("cancelling removes a waiting job, and cancelling it again is too late") {
  small_pool p;
  p.submit();
  CHECK(p.book.cancel(1) == cancelled::before_it_began);
  CHECK(p.book.cancel(1) == cancelled::over);
  CHECK(p.book.cancel(2) == cancelled::over);
  const settle_job end = settled(p.go());
  CHECK(end.how == job_end::cancelled);
  CHECK(end.attempts == 0);
  CHECK(end.never_leased);
  p.book.worker_joined(a1, 1);
  CHECK(p.go().empty());
}

TEST_CASE("a leased job that has not started is revoked, and then cancelled like a waiting one") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 2);
  const auto row = p.book.revocable(3);
  REQUIRE(row);
  CHECK(row->lease == order.lease);
  CHECK(row->row == 1);
  p.book.row_revoked(row->lease, row->row);
  CHECK_FALSE(p.book.revocable(3));
  CHECK(p.book.cancel(3, true) == cancelled::before_it_began);
  const settle_job end = settled(p.go());
  CHECK(end.how == job_end::cancelled);
  CHECK_FALSE(end.never_leased);
}

TEST_CASE("cancelling a running job ends its worker and revokes the worker's other rows") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 3);
  REQUIRE(p.book.seen(table_of(order, 0, row_at::begun)) == job_arrival::accepted);
  CHECK_FALSE(p.book.revocable(2));
  CHECK(p.book.cancel(2, true) == cancelled::running);
  CHECK(p.go().empty());
  CHECK(p.book.cancel(2) == cancelled::running);
  const auto said = p.go();
  REQUIRE(said.size() == 3);
  CHECK(only<revoke_row>(said).size() == 2);
  REQUIRE(std::holds_alternative<end_worker>(said[2]));  // the order to end comes after the revocations
  CHECK(std::get<end_worker>(said[2]).who == a1);
  CHECK_FALSE(std::get<end_worker>(said[2]).at_once);
  CHECK(p.book.cancel(2) == cancelled::running);
  CHECK(p.go().empty());
  CHECK(p.book.cancel(2, false, true) == cancelled::running);
  CHECK(only<end_worker>(p.go()).at(0).at_once);
  p.submit();
  CHECK(p.leases().empty());  // no lease for a worker that is being killed
  CHECK_FALSE(p.die(order, 0, row_at::begun));
  const settle_job end = settled(p.go());
  CHECK(end.job == 2);
  CHECK(end.how == job_end::cancelled);
  CHECK(end.attempts == 1);
}

TEST_CASE("a running job is not blamed when its worker is ended because of another job") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 2);
  CHECK(p.book.cancel(2) == cancelled::running);
  CHECK_FALSE(p.die(order, 1, row_at::begun));  // the cancelled job had just finished
  const settle_job end = settled(p.go());
  CHECK(end.job == 2);
  CHECK(end.how == job_end::result);
  p.book.worker_joined(a2, 1);
  CHECK(p.lease().rows == std::vector<leased_job>{{3, 1, false}});
}

TEST_CASE("a suspect that waits for its probation can be cancelled, which removes every trace of it") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.submit();
  p.crash(p.lease());
  CHECK(p.book.waiting() == 1);
  p.crash(p.lease());
  REQUIRE(p.book.wants_sacrificial());
  CHECK(p.book.waiting() == 1);
  CHECK(p.book.cancel(1) == cancelled::before_it_began);
  CHECK(settled(p.go()).causes == causes{"SIGSEGV", "SIGSEGV"});
  CHECK_FALSE(p.book.wants_sacrificial());
  CHECK(p.book.waiting() == 0);
}
