// What happens to the jobs of a dead worker, one rule per test. Combinations are tested in
// job_book_model_test.cpp.
#include "tests/runtime/schedule/job_pool.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <tuple>

using namespace penstock;
using namespace penstock::schedule;
using namespace penstock::testing;

using jobs = std::vector<job_id>;
using causes = std::vector<std::string>;

TEST_CASE(
    "after a death, finished jobs are kept, the started one is blamed, and the rest return to the head of the queue") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 4);
  p.submit();
  const auto foreseen = p.book.would_blame(a1, {table_of(order, 1, row_at::begun)});
  const auto blamed = p.die(order, 1, row_at::begun);
  REQUIRE(blamed);
  CHECK(blamed->job == 3);
  CHECK(blamed->attempt == 1);
  CHECK_FALSE(blamed->alone);
  REQUIRE(foreseen);
  CHECK(foreseen->job == 3);
  CHECK(settled(p.go()).job == 2);
  p.book.worker_joined(b1, 4);
  const auto orders = p.leases();
  REQUIRE(orders.size() >= 2);
  CHECK(jobs_of(orders[0]) == jobs{3});  // the suspect is alone and comes first
  CHECK(orders[0].rows[0].attempt == 2);
  CHECK(jobs_of(orders[1]).at(0) == 4);
  CHECK(orders[1].rows[0].attempt == 1);
}

TEST_CASE("a death costs another run of the job that had begun, and none of those that had not") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 4);
  p.die(order, 1, row_at::begun);
  CHECK(std::tuple(p.book.last_losses().jobs, p.book.last_losses().again) == std::tuple(1U, 0U));
  p.book.worker_joined(a2, 1);
  p.die(p.lease(), 0, row_at::waiting);
  CHECK(p.book.last_losses().jobs == 0);
}

TEST_CASE("a death tells when its worker got each job that it loses, begun or not, but not those that had ended or were cancelled") {
  small_pool p;
  const steady_time leased = p.now;
  const lease_jobs order = bundle_of(p, 4);
  p.book.cancel(order.rows[3].job);
  p.now += 5s;
  (void)p.go();
  p.die(order, 1, row_at::begun);
  std::vector<job_id> lost;
  for (const lost_lease& one : p.book.last_losses().leases) {
    lost.push_back(one.job);
    CHECK(one.leased == leased);
  }
  CHECK(lost == jobs{order.rows[1].job, order.rows[2].job});
  p.book.worker_joined(a2, 1);
  const lease_jobs again = p.lease();
  p.die(again, 0, row_at::begun);
  REQUIRE_FALSE(p.book.last_losses().leases.empty());
  CHECK(p.book.last_losses().leases[0].leased == leased + 5s);
}

TEST_CASE("a job that two unrelated deaths lose is lost again the second time, though neither is blamed on it") {
  small_pool p;
  p.book.worker_joined(a1, 1);
  p.submit();
  p.die(p.lease(), 0, row_at::begun, job_death::unrelated);
  CHECK(std::tuple(p.book.last_losses().jobs, p.book.last_losses().again) == std::tuple(1U, 0U));
  p.book.worker_joined(a2, 1);
  p.die(p.lease(), 0, row_at::begun, job_death::unrelated);
  CHECK(std::tuple(p.book.last_losses().jobs, p.book.last_losses().again) == std::tuple(1U, 1U));
}

TEST_CASE("each death after the first loses a job again, but the one that poisons it costs no further run") {
  small_pool p;
  const bool lost_before = GENERATE(false, true);
  p.book.worker_joined(a1, 1);
  p.book.worker_joined(helper1, 1, true);
  p.submit({.lost_before = lost_before});
  const auto losses = [&] { return std::tuple(p.book.last_losses().jobs, p.book.last_losses().again); };
  p.crash(p.lease(), 1);
  CHECK(losses() == std::tuple(1U, lost_before ? 1U : 0U));
  p.crash(p.lease(), 1);
  CHECK(losses() == std::tuple(1U, 1U));
  p.die(p.lease(), 0, row_at::begun);
  CHECK(losses() == std::tuple(0U, 0U));
  CHECK(settled(p.go()).how == job_end::poisoned);
}

TEST_CASE("a death between two rows is blamed on no job") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 2);
  CHECK_FALSE(p.die(order, 1, row_at::waiting));
  p.book.worker_joined(a2, 1);
  CHECK(p.lease().rows[0].attempt == 1);
}

TEST_CASE("a death unrelated to its job does not affect the job") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 1);
  CHECK_FALSE(p.die(order, 0, row_at::begun, job_death::unrelated));
  p.book.worker_joined(a2, 1);
  const lease_jobs again = p.lease();
  CHECK(again.rows[0].attempt == 1);
  REQUIRE(p.book.reported(table_of(again, 1)) == job_arrival::accepted);
  const settle_job done = settled(p.go());
  CHECK(done.attempts == 2);
  CHECK(done.causes.empty());
}

TEST_CASE("a suspect runs on another worker, even if it must wait for that one") {
  small_pool p;
  p.book.worker_joined(b1, 1);
  p.submit();
  const lease_jobs long_one = p.lease();
  p.book.worker_joined(a1, 1);
  p.submit();
  p.crash(p.lease(), 1);
  CHECK(p.leases().empty());
  REQUIRE(p.book.reported(table_of(long_one, 1)) == job_arrival::accepted);
  const lease_jobs again = p.lease();
  CHECK(again.lease.holder == b1);
  CHECK(jobs_of(again) == jobs{2});
}

TEST_CASE("a suspect that no other worker can run in time runs in the place where it killed") {
  small_pool p;
  p.book.worker_joined(b1, 2);
  p.submit();
  const lease_jobs long_one = p.lease();
  p.book.worker_joined(a1, 1);
  p.submit();
  p.crash(p.lease(), 1);
  const lease_jobs ahead = p.lease();
  CHECK(ahead.lease.holder == b1);  // the job waits behind the long one
  REQUIRE(p.go().empty());
  REQUIRE(p.book.next_look() == p.now + small_slots.suspect_patience);
  p.now = *p.book.next_look();
  const auto asked = p.go();
  REQUIRE(asked.size() == 1);
  CHECK(std::get<revoke_row>(asked[0]).job == 2);
  p.book.row_revoked(ahead.lease, 0);
  const lease_jobs again = p.lease();
  CHECK(again.lease.holder == a2);
  CHECK(again.rows[0].attempt == 2);
}

TEST_CASE("a suspect that has waited too long for another worker starts in the place where it killed") {
  small_pool p;
  p.book.worker_joined(b1, 1);
  p.submit();
  const lease_jobs long_one = p.lease();
  p.book.worker_joined(a1, 1);
  p.submit();
  p.crash(p.lease(), 1);
  REQUIRE(p.leases().empty());  // the other worker has no free slot
  REQUIRE(p.book.next_look() == p.now + small_slots.suspect_patience);
  p.now = *p.book.next_look();
  CHECK(p.lease().lease.holder == a2);
}

TEST_CASE("without another worker a suspect runs in the next incarnation") {
  small_pool p;
  p.book.worker_joined(a1, 1);
  p.submit();
  p.crash(p.lease(), 1);
  const lease_jobs again = p.lease();
  CHECK(again.lease.holder == a2);
  CHECK(again.rows[0].attempt == 2);
}

TEST_CASE(
    "if every worker is busy a suspect is leased ahead, but never moved to the worker that died of it") {
  small_pool p;
  p.book.worker_joined(b1, 2);
  p.submit();
  const lease_jobs long_one = p.lease();
  p.book.worker_joined(a1, 1);
  p.submit();
  p.crash(p.lease(), 1);
  const lease_jobs again = p.lease();
  CHECK(again.lease.holder == b1);
  CHECK(jobs_of(again) == jobs{2});
  CHECK(p.go().empty());  // nothing to revoke: worker 0 is idle
}

TEST_CASE("a job that kills three workers is poisoned, the third time alone, with the cause of each death") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.submit();
  p.crash(p.lease());
  p.crash(p.lease());
  CHECK(p.book.wants_sacrificial());
  CHECK(p.leases().empty());
  p.book.worker_joined(helper1, 1, true);
  const lease_jobs alone = p.lease();
  CHECK(alone.lease.holder == helper1);
  CHECK(alone.rows == std::vector<leased_job>{{1, 3, false}});
  const auto blamed = p.die(alone, 0, row_at::begun);
  REQUIRE(blamed);
  CHECK(blamed->alone);
  CHECK(blamed->attempt == 3);
  const settle_job end = settled(p.go());
  CHECK(end.how == job_end::poisoned);
  CHECK(end.attempts == 3);
  CHECK(end.causes == causes{"SIGSEGV", "SIGSEGV", "SIGSEGV"});
  CHECK_FALSE(end.at);
  CHECK_FALSE(p.book.wants_sacrificial());
  CHECK(p.book.unsettled() == 0);
}

TEST_CASE("a suspect that finishes alone keeps its result, and the deaths are reported") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.submit();
  p.crash(p.lease());
  p.crash(p.lease());
  p.book.worker_joined(helper1, 1, true);
  REQUIRE(p.book.reported(table_of(p.lease(), 1)) == job_arrival::accepted);
  const settle_job end = settled(p.go());
  CHECK(end.how == job_end::result);
  CHECK(end.attempts == 3);
  CHECK(end.causes == causes{"SIGSEGV", "SIGSEGV"});
  CHECK_FALSE(p.book.wants_sacrificial());
}

TEST_CASE("a sacrificial worker ended by an operator proves nothing about its job") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.submit();
  p.crash(p.lease());
  p.crash(p.lease());
  p.book.worker_joined(helper1, 1, true);
  CHECK_FALSE(p.die(p.lease(), 0, row_at::begun, job_death::unrelated));
  CHECK(p.go().empty());
  p.book.worker_joined({small_pool::helper, 2}, 1, true);
  CHECK(p.lease().rows[0].attempt == 3);
}

TEST_CASE(
    "jobs that cannot be tried alone are poisoned with the reason, and a probation in progress continues") {
  small_pool p;
  p.book.worker_joined(a1, 1);
  p.submit_many(2);
  for (int i = 0; i < 4; ++i) p.crash(p.lease(), 1);
  p.book.worker_joined(helper1, 1, true);
  const lease_jobs probation = p.lease();
  CHECK(jobs_of(probation) == jobs{1});
  p.book.cannot_try_alone("it does not start");
  const settle_job end = settled(p.go());
  CHECK(end.job == 2);
  CHECK(end.how == job_end::poisoned);
  CHECK(end.causes == causes{"SIGSEGV", "SIGSEGV", "could not be tried alone: it does not start"});
  REQUIRE(p.book.reported(table_of(probation, 1)) == job_arrival::accepted);
  CHECK(settled(p.go()).how == job_end::result);
}

TEST_CASE("with one attempt allowed, the first death poisons the job") {
  small_pool p({.max_attempts = 1, .slot_bytes = 4096});
  p.book.worker_joined(a1, 1);
  p.submit();
  p.crash(p.lease(), 1);
  CHECK(settled(p.go()).how == job_end::poisoned);
}

TEST_CASE("a job that is not idempotent is never begun twice") {
  for (const auto how : {job_death::of_the_job, job_death::unrelated}) {
    small_pool p;
    const lease_jobs order = bundle_of(p, 2, false);
    p.die(order, 0, row_at::begun, how);
    const settle_job end = settled(p.go());
    CHECK(end.job == 2);
    CHECK(end.how == job_end::worker_lost);
    CHECK(end.causes == causes{"SIGSEGV"});
    p.book.worker_joined(a2, 1);
    CHECK(jobs_of(p.lease()) == jobs{3});  // the job had not started
  }
}

TEST_CASE(
    "if a job's worker is killed after its limit, the job has timed out, and before it the death is blamed") {
  for (const auto took : {999ms, 1000ms}) {  // before the limit: the worker had begun the next job of its bundle
    small_pool p;
    p.book.worker_joined(a1, 1);
    p.submit({.limit = 1s});
    const lease_jobs order = p.lease();
    p.now = table_of(order, 0).rows[0].begun + took;
    const auto blamed = p.die(order, 0, row_at::begun, job_death::of_its_limit);
    REQUIRE(blamed);
    CHECK(blamed->job == 1);
    const auto ends = only<settle_job>(p.go());
    CHECK(ends.size() == (took == 1000ms ? 1 : 0));
    if (!ends.empty()) CHECK(ends[0].how == job_end::timed_out);
    if (!ends.empty()) CHECK(ends[0].causes == causes{"SIGSEGV"});
  }
}

TEST_CASE(
    "a job with a limit whose worker crashes is retried, even if all processes were suspended while it ran") {
  small_pool p;
  p.book.worker_joined(a1, 1);
  p.submit({.limit = 10s});
  const lease_jobs order = p.lease();
  p.now = table_of(order, 0).rows[0].begun + 1s + 1h;
  const auto blamed = p.die(order, 0, row_at::begun);
  REQUIRE(blamed);
  CHECK(blamed->job == 1);
  CHECK(only<settle_job>(p.go()).empty());
  p.book.worker_joined(b1, 1);
  CHECK(jobs_of(p.lease()) == jobs{1});
}

TEST_CASE("a death with an overwritten table is blamed on the row whose turn it was") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 3);
  auto table = table_of(order, 1, row_at::unreadable);
  table.rows[2].at = row_at::unreadable;
  const auto blamed = p.book.worker_died(a1, {table}, "SIGSEGV", job_death::of_the_job, p.now);
  REQUIRE(blamed);
  CHECK(blamed->job == 3);
}

TEST_CASE("an unread table counts as overwritten, and no job in it that is not idempotent runs again") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 1);
  p.submit({.idempotent = false});
  REQUIRE(p.book.reported(table_of(order, 1)) == job_arrival::accepted);
  (void)p.lease();
  const auto blamed = p.book.worker_died(a1, {}, "SIGSEGV", job_death::of_the_job, p.now);
  REQUIRE(blamed);
  CHECK(blamed->job == 3);
  CHECK(only<settle_job>(p.go()).back().how == job_end::worker_lost);
}

TEST_CASE("a worker's death counts once") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 1);
  CHECK(p.die(order, 0, row_at::begun));
  CHECK_FALSE(p.die(order, 0, row_at::begun));
  CHECK(p.book.leases_of(a1).empty());
  p.book.worker_joined(a2, 1);
  p.book.worker_joined(a1, 1);
  CHECK(p.lease().lease.holder == a2);
}

// ---- drains -----------------------------------------------------------------------------------------------

TEST_CASE("a draining worker finishes its jobs and gets no new ones") {
  small_pool p;
  p.book.worker_joined(a1, 2);
  p.submit();
  const lease_jobs order = p.lease();
  p.book.worker_drains(a1);
  p.submit();
  CHECK(p.go().empty());
  REQUIRE(p.book.reported(table_of(order, 1)) == job_arrival::accepted);
  CHECK(p.leases().empty());
  p.book.worker_joined(b1, 2);
  CHECK(p.lease().lease.holder == b1);
}

TEST_CASE("a worker that drains in a hurry returns the jobs that it has not started") {
  small_pool p;
  const lease_jobs order = bundle_of(p, 3);
  p.book.worker_drains(a1, true);
  CHECK(only<revoke_row>(p.go()).size() == 3);
  p.book.row_revoked(order.lease, 1);
  p.book.row_revoked(order.lease, 2);
  CHECK(p.book.waiting() == 2);
  p.book.worker_joined(b1, 1);
  CHECK(jobs_of(p.lease()) == jobs{3, 4});
}
