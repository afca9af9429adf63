#include "actors/jobs/job_counts.hpp"

#include <catch2/catch_all.hpp>

#include <thread>

namespace penstock::jobs {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a pool without jobs has no callers left to notify") {
  job_counts counts;
  CHECK(counts.wait_until_all_notified(0ns));
}

TEST_CASE("waiting for all notifications includes jobs that have ended but whose callers do not know") {
  job_counts counts;
  CHECK(counts.submit() == 1);
  CHECK(counts.submit() == 2);
  counts.count_ended({1, 1, 0}, {});
  CHECK(counts.ended() == 2);
  CHECK_FALSE(counts.wait_until_all_notified(0ns));
  std::thread notifies([&] {
    counts.count_notified(1);
    counts.count_notified(1);
  });
  CHECK(counts.wait_until_all_notified(60s));
  notifies.join();
}

TEST_CASE("jobs that no actor received count as cancelled or failed and delay no wait") {
  job_counts counts;
  counts.submit();
  counts.submit();
  counts.submit();
  counts.count_orphans(2, true);
  counts.count_orphans(1, false);
  CHECK(counts.ended() == 3);
  CHECK(counts.wait_until_all_notified(0ns));
  CHECK(counts.statistics().cancelled == 2);
  CHECK(counts.statistics().failed == 1);
}

TEST_CASE("statistics list the functions that were called, with their latest counts") {
  job_counts counts;
  counts.name_functions({"resize", "never called", "encode"});
  const std::vector<job_news::function_counts> before{{1, 0, 0, 0, 0}, {}, {0, 1, 0, 0, 0}};
  const std::vector<job_news::function_counts> after{{0, 0, 1, 0, 2}, {}, {0, 0, 0, 1, 0}};
  counts.count_ended({0, 0, 0}, before);
  counts.set_under_way(3, 1);
  CHECK(counts.statistics().running == 1);
  CHECK(counts.statistics().handed == 3);
  counts.count_ended({1, 1, 2, 4}, after);
  const pool_statistics now = counts.statistics();
  CHECK(std::tuple(now.ok, now.failed, now.retried, now.cancelled) == std::tuple(1u, 1u, 2u, 4u));
  REQUIRE(now.functions.size() == 2);
  CHECK(std::tuple(now.functions[0].name, now.functions[0].ok, now.functions[0].retried) ==
        std::tuple("resize", 1u, 2u));
  CHECK(std::tuple(now.functions[1].name, now.functions[1].failed) == std::tuple("encode", 1u));
}

TEST_CASE(
    "where the program decides which jobs succeeded, an ended job counts as running until then, and its "
    "tries once") {
  job_counts counts(true);
  counts.name_functions({"command"});
  for (int i = 0; i < 4; ++i) counts.submit();
  const std::vector<job_news::function_counts> ended{{0, 0, 3, 1, 0, 0}};
  counts.count_ended({3, 1, 0, 0}, ended);
  CHECK(std::tuple(counts.statistics().running, counts.statistics().ok, counts.statistics().failed) == std::tuple(4U, 0U, 0U));
  counts.judge("command", job_verdict::ok);
  counts.judge("command", job_verdict::nonzero_exit);
  counts.judge("command", job_verdict::failed);
  CHECK(counts.submit_again() == 5);
  counts.judge("command", job_verdict::again);
  const pool_statistics all = counts.statistics();
  CHECK(std::tuple(all.submitted, all.running, all.ok, all.failed, all.nonzero_exits) == std::tuple(4U, 0U, 2U, 1U, 1U));
  REQUIRE(all.functions.size() == 1);
  CHECK(std::tuple(all.functions[0].running, all.functions[0].ok, all.functions[0].failed) == std::tuple(0U, 2U, 1U));
}

}  // namespace
}  // namespace penstock::jobs
