#include "actors/jobs/job_counts.hpp"

#include "tests/random_seed.hpp"

#include <catch2/catch_all.hpp>

#include <array>
#include <random>
#include <thread>

namespace penstock::jobs {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a pool without jobs has no callers left to notify") {
  job_counts counts;
  CHECK(counts.wait_until_all_notified(0ns));
}

TEST_CASE("waiting for all notifications includes jobs that have ended but whose callers have not been notified") {
  job_counts counts;
  CHECK(counts.submit() == 1);
  CHECK(counts.submit() == 2);
  counts.count({1, 1, 0}, {}, {});
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
  const std::vector<job_listener::function_counts> before{{1, 0, 0, 0, 0}, {}, {0, 1, 0, 0, 0}};
  const std::vector<job_listener::function_counts> after{{0, 0, 1, 0, 2}, {}, {0, 0, 0, 1, 0}};
  counts.count({0, 0, 0}, before, {3, 1});
  CHECK(counts.statistics().running == 1);
  CHECK(counts.statistics().handed == 3);
  counts.count({1, 1, 2, 4}, after, {3, 1});
  const pool_statistics now = counts.statistics();
  CHECK(std::tuple(now.ok, now.failed, now.retried, now.cancelled) == std::tuple(1u, 1u, 2u, 4u));
  REQUIRE(now.functions.size() == 2);
  CHECK(std::tuple(now.functions[0].name, now.functions[0].ok, now.functions[0].retried) ==
        std::tuple("resize", 1u, 2u));
  CHECK(std::tuple(now.functions[1].name, now.functions[1].failed) == std::tuple("encode", 1u));
}

TEST_CASE(
    "if the program decides whether a job succeeded, the job counts as running until then, and its attempts count once") {
  job_counts counts(true);
  counts.name_functions({"command"});
  for (int i = 0; i < 4; ++i) counts.submit();
  const std::vector<job_listener::function_counts> ended{{0, 0, 3, 1, 0, 0}};
  counts.count({3, 1, 0, 0}, ended, {});
  CHECK(std::tuple(counts.statistics().running, counts.statistics().ok, counts.statistics().failed) == std::tuple(4U, 0U, 0U));
  counts.judge("command", job_verdict::ok);
  counts.judge("command", job_verdict::nonzero_exit);
  counts.judge("command", job_verdict::failed);
  CHECK(counts.submit_again("command") == 5);
  const pool_statistics all = counts.statistics();
  CHECK(std::tuple(all.submitted, all.waiting, all.running, all.ok, all.failed, all.nonzero_exits) == std::tuple(4U, 1U, 0U, 2U, 1U, 1U));
  REQUIRE(all.functions.size() == 1);
  CHECK(std::tuple(all.functions[0].running, all.functions[0].ok, all.functions[0].failed) == std::tuple(0U, 2U, 1U));
}

/// A pool and its program, with jobs in each place.
struct simulated_pool {
  explicit simulated_pool(bool judged) : counts(judged), is_judged(judged) { counts.name_functions({"f"}); }

  void tell(const job_listener::tally& ended = {}) { counts.count(ended, {}, {leased, at_device}); }
  static bool take_from(std::uint64_t& place) { return place > 0 && place-- > 0; }
  void step(std::uint64_t choice) {
    switch (choice % 8) {
      case 0:
        ++waiting;
        counts.submit();
        break;
      case 1: move(waiting, leased, {}); break;
      case 2: move(leased, at_device, {}); break;
      case 3: move(leased, unjudged, {1, 0, 0, 0}); break;
      case 4: move(at_device, unjudged, {0, 1, 0, 0}); break;
      case 5: move(leased, cancelled, {0, 0, 0, 1}); break;
      case 6:
        if (is_judged && take_from(unjudged)) counts.judge("f", verdicts.at(judged++ % verdicts.size()));
        break;
      default:  // the program repeats a job
        if (!is_judged || !take_from(unjudged)) break;
        ++waiting;
        counts.submit_again("f");
    }
  }
  void move(std::uint64_t& from, std::uint64_t& to, const job_listener::tally& ended) {
    if (!take_from(from)) return;
    ++to;
    tell(ended);
  }

  static constexpr std::array verdicts{job_verdict::ok, job_verdict::failed, job_verdict::nonzero_exit};
  job_counts counts;
  const bool is_judged;
  std::uint64_t waiting = 0, leased = 0, at_device = 0, unjudged = 0, judged = 0, cancelled = 0;
};

TEST_CASE("waiting, running and ended jobs always add up to the submitted ones (rule J31)") {
  const bool judged = GENERATE(false, true);
  std::mt19937_64 random(testing::seed_of_this_run("the counts of a pool"));
  simulated_pool pool(judged);
  for (int i = 0; i < 20'000; ++i) {
    pool.step(random());
    const pool_statistics now = pool.counts.statistics();
    REQUIRE(now.submitted == now.waiting + now.running + now.ok + now.failed + now.cancelled);
    REQUIRE(now.waiting == pool.waiting + pool.leased);  // host::look_closer subtracts the jobs that workers have begun
    REQUIRE(now.handed == pool.leased);
    REQUIRE(now.running == pool.at_device + (judged ? pool.unjudged : 0));
    REQUIRE(now.ok + now.failed == (judged ? pool.judged : pool.unjudged));
    REQUIRE(now.cancelled == pool.cancelled);
  }
}

}  // namespace
}  // namespace penstock::jobs
