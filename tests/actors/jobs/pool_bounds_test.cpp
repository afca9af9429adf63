// What a pool does when its queue, its memory or its slots are full.
#include "tests/actors/jobs/support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <map>
#include <thread>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

TEST_CASE("a caller who keeps all results blocks no other job") {
  config c = odd_jobs(1);
  Pool pool(c, quietly());
  std::vector<Result> kept;
  std::vector<std::span<const std::byte>> seen;
  for (int i = 0; i < 40; ++i) {
    kept.push_back(pool.submit("fill", std::to_string(300'000 + i)).get());
    seen.push_back(kept.back().bytes());
  }
  for (int i = 0; i < 40; ++i) {
    REQUIRE(seen[i].size() == 300'000U + i);
    for (std::size_t k = 0; k < seen[i].size(); k += 997)
      REQUIRE(seen[i][k] == static_cast<std::byte>(k * 31));
  }
}

TEST_CASE("unclaimed results leave their slots when other jobs need them") {
  Pool pool(odd_jobs(1), quietly());
  std::vector<Job> jobs;
  for (int i = 0; i < 40; ++i) jobs.push_back(pool.submit("fill", "200000"));
  for (Job& job : jobs) REQUIRE(job.wait_for(20s));
  for (Job& job : jobs) CHECK(job.get().bytes().size() == 200'000);
}

TEST_CASE("an input beyond the pool's memory is too_large, and the other inputs get their outcomes") {
  config c = odd_jobs(1);
  c.jobs.memory = {1U << 20U};
  Pool pool(c, quietly());
  for (const bool ordered : {true, false}) {
    int taken = 0;
    const Pool::source inputs = [&]() -> std::optional<Argument> {
      if (taken == 6) return std::nullopt;
      return taken++ == 2 ? Argument(std::string(2U << 20U, 'a')) : Argument("echo");
    };
    auto outcomes = ordered ? pool.map("echo", inputs) : pool.map_unordered("echo", inputs);
    std::map<std::uint64_t, job_status> found;
    while (const auto one = outcomes.next()) {
      found[one->index] = status_of(one->job);
      if (one->index == 2) CHECK(one->job.why()->text.find("2.00 MiB") != std::string::npos);
    }
    using enum job_status;
    CHECK(found ==
          std::map<std::uint64_t, job_status>{{0, ok}, {1, ok}, {2, too_large}, {3, ok}, {4, ok}, {5, ok}});
  }
  CHECK(pool.statistics().failed == 2);
  CHECK(pool.finish(10s));
}

TEST_CASE("a full queue refuses try_submit at once and submit at its deadline, saying what is full") {
  config c = odd_jobs(1);
  c.jobs.queue = 4;
  Pool pool(c, quietly());
  pool.pause();
  std::vector<Job> jobs;
  while (auto job = pool.try_submit("sleep", "1")) jobs.push_back(*job);
  CHECK(jobs.size() == 4);
  try {
    pool.submit("sleep", "1", {}, 20ms);
    FAIL("it was admitted");
  } catch (const error& refused) {
    CHECK(refused.code() == errc::timed_out);
    CHECK(std::string(refused.what()).find("4 of at most 4 jobs wait ([jobs] queue)") != std::string::npos);
  }
  pool.resume();
  for (Job& job : jobs) CHECK(job.get().text() == "awake");
  CHECK(pool.submit("sleep", "1", {}, 10s).get().text() == "awake");
}

TEST_CASE("an argument beyond the pool's memory is refused, and submitting continues") {
  config c = odd_jobs(1);
  c.jobs.memory = {8U << 20U};
  Pool pool(c, quietly());
  CHECK(code_of([&] { pool.submit("echo", std::vector<std::byte>(9U << 20U)); }) == errc::out_of_memory);
  CHECK(pool.submit("double", "1").get().text() == "2");
  CHECK(status_of(pool.submit("fill", std::to_string(9U << 20U))) == job_status::too_large);
  CHECK(pool.submit("double", "2").get().text() == "4");
}

TEST_CASE("results of jobs behind a slow one stay within [jobs] memory, and arrive in order when it ends") {
  config c = odd_jobs(2);
  c.jobs.memory = {8U << 20U};
  Pool pool(c, quietly());
  std::vector<Job> jobs{pool.submit("hang", {})};
  for (int i = 0; i < 60; ++i) jobs.push_back(pool.submit("fill", "1100000"));
  std::uint64_t most = 0;
  const auto filled = [&] {
    most = std::max(most, pool.statistics().result_bytes);
    return most + 1'100'000 + (1U << 20U) > (8U << 20U);  // the first job may return 1 MiB
  };
  await([&] { return filled() && pool.statistics().running == 1; });
  for (int i = 0; i < 200; ++i, std::this_thread::sleep_for(1ms))
    filled();  // any further job would exceed the limit
  CHECK(most <= 8U << 20U);
  CHECK(pool.statistics().running == 1);
  jobs[0].kill();
  CHECK(status_of(jobs[0]) == job_status::cancelled);
  for (std::size_t i = 1; i < jobs.size(); ++i) {
    CHECK(jobs[i].get().bytes().size() == 1'100'000);
    jobs[i] = {};
    filled();
  }
  CHECK(most <= 8U << 20U);
}

TEST_CASE("a slow job whose worker dies is retried even though later results fill the memory") {
  config c = odd_jobs(2);
  c.jobs.memory = {4U << 20U};
  Pool pool(c, quietly());
  std::vector<Job> jobs{pool.submit("odd", "hang")};
  for (int i = 0; i < 30; ++i) jobs.push_back(pool.submit("fill", "1100000"));
  await([&] {
    return pool.statistics().result_bytes + 1'100'000 > (4U << 20U) && pool.statistics().running == 1;
  });
  for (const worker_status& w : pool.status().workers)
    if (w.current_sample) ::kill(w.pid.value(), SIGKILL);
  CHECK(jobs[0].get().text() == "hang");
  CHECK(jobs[0].attempts() == 2);
  for (std::size_t i = 1; i < jobs.size(); ++i) {
    REQUIRE(jobs[i].get().bytes().size() == 1'100'000);
    jobs[i] = {};
  }
}

TEST_CASE("callbacks may submit while results with pending callbacks fill the memory") {
  config c = odd_jobs(2);
  c.jobs.memory = {8U << 20U};
  c.jobs.queue = 4;
  Pool pool(c, quietly());
  std::latch all(24);
  for (int i = 0; i < 12; ++i) {
    pool.submit("fill", "3000000").then([&](Job first) {
      pool.submit("echo", std::string(100'000, 'a')).then([&](const Job&) { all.count_down(); });
      CHECK(first.get().bytes().size() == 3'000'000);
      all.count_down();
    });
  }
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!all.try_wait() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  REQUIRE(all.try_wait());
}

TEST_CASE(
    "a caller that keeps all outcomes of a mapping is warned after 5 s, then gets an error, and continues after freeing some") {
  config c = odd_jobs(2);
  c.jobs.memory = {8U << 20U};
  std::promise<std::string> said;
  std::atomic<bool> first = true;
  pool_options options = quietly();
  options.on_event = [&](const event& what) {
    if (what.kind == event_kind::stalled && first.exchange(false)) said.set_value(what.text);
  };
  Pool pool(c, options);
  int taken = 0;
  auto outcomes = pool.map("fill", [&]() -> std::optional<Argument> {
    return taken < 20 ? (++taken, std::optional<Argument>("1100000")) : std::nullopt;
  });
  std::vector<Result> kept;
  std::string why;
  while (why.empty()) {
    try {
      kept.push_back(outcomes.next()->job.get());
      REQUIRE(kept.size() < 20);
    } catch (const error& e) {
      CHECK(e.code() == errc::usage);
      why = e.what();
    }
  }
  CHECK(kept.size() >= 6);
  CHECK(why.find("until this thread frees results") != std::string::npos);
  CHECK(why.find("of 8.00 MiB ([jobs] memory)") != std::string::npos);
  auto text = said.get_future();
  REQUIRE(text.wait_for(0s) == std::future_status::ready);
  CHECK(text.get().find("waiting for callers to free results") != std::string::npos);
  std::size_t all = kept.size();
  kept.clear();
  while (const auto one = outcomes.next()) all += status_of(one->job) == job_status::ok ? 1 : 0;
  CHECK(all == 20);
}

TEST_CASE("an urgent job starts before waiting ones, and a full queue does not block it") {
  config c = odd_jobs(1);
  c.jobs.queue = 3;
  Pool pool(c, quietly());
  CHECK(pool.submit("nothing", {}).get().bytes().empty());
  pool.pause();
  std::vector<Job> jobs;
  while (auto job = pool.try_submit("count_runs", {})) jobs.push_back(*job);
  Job urgent = pool.submit("count_runs", {}, {.urgent = true}, 0ms);
  pool.resume();
  CHECK(urgent.get().text() == "1");
  CHECK(jobs.back().get().text() == "4");
}
