// The behaviour of a pool with well-behaved jobs: results, order, timeouts, cancelling. Its bounds are in pool_bounds_test.cpp.
#include "tests/actors/jobs/support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <map>
#include <set>
#include <thread>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

TEST_CASE("a job returns what its function computes from its argument") {
  Pool pool(odd_jobs(2), quietly());
  Job job = pool.submit("double", "21");
  CHECK(job.get().text() == "42");
  CHECK(job.done());
  CHECK(job.attempts() == 1);
  CHECK(!job.why());
}

TEST_CASE("ten thousand small jobs each give their own result, once") {
  Pool pool(odd_jobs(2), quietly());
  std::vector<Job> jobs;
  for (int i = 0; i < 10000; ++i) jobs.push_back(pool.submit("double", std::to_string(i)));
  for (int i = 0; i < 10000; ++i) REQUIRE(jobs[i].get().text() == std::to_string(2 * i));
  const pool_statistics all = pool.statistics();
  CHECK(all.submitted == 10000);
  CHECK(all.ok == 10000);
  CHECK(all.failed == 0);
}

TEST_CASE("if bundled jobs take longer than expected, their worker may report each of them separately") {
  Pool pool(odd_jobs(1), quietly());
  for (int i = 0; i < 50; ++i) pool.submit("sleep", "0").get();  // teach the pool that the function is quick
  pool.pause();
  std::vector<Job> jobs;
  for (int i = 0; i < 60; ++i) jobs.push_back(pool.submit("sleep", "2"));
  pool.resume();
  for (Job& job : jobs) CHECK(job.get().text() == "awake");
  CHECK(pool.report().deaths.empty());
}

TEST_CASE("a job of a bundle ends for its caller even if the next one takes a long time") {
  Pool pool(odd_jobs(1), quietly());
  for (int i = 0; i < 50; ++i) pool.submit("sleep", "0").get();  // teach the pool that the function is quick
  pool.pause();
  Job quick = pool.submit("sleep", "0");
  Job slow = pool.submit("sleep", "60000");
  pool.resume();
  CHECK(quick.wait_for(20s));
  CHECK(!slow.done());
}

TEST_CASE("empty results and empty arguments are valid") {
  Pool pool(odd_jobs(1), quietly());
  CHECK(pool.submit("nothing", {}).get().bytes().empty());
  CHECK(pool.submit("echo", {}).get().bytes().empty());
}

TEST_CASE("arguments and results of any size arrive whole, in the slot or outside of it") {
  Pool pool(odd_jobs(2), quietly());
  for (const std::size_t bytes :
       {1UL, 63UL, 64UL, 65UL, 4096UL, 100'000UL, 700'000UL, 1UL << 20U, 5'000'001UL}) {
    std::vector<std::byte> sent(bytes);
    for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + 3);
    Result result = pool.submit("echo", std::vector<std::byte>(sent)).get();
    const auto got = result.bytes();
    INFO(bytes);
    REQUIRE(got.size() == bytes);
    REQUIRE(std::ranges::equal(got, sent));
  }
}

TEST_CASE("many quick jobs all get their arguments when none fits a slot") {
  config c = odd_jobs(1);
  c.loader.slot_bytes = byte_size{65'536};
  Pool pool(c, quietly());
  for (int i = 0; i < 50; ++i) pool.submit("nothing", {}).get();  // teach the pool that the function is quick
  pool.pause();
  std::vector<Job> jobs;
  for (int i = 0; i < 600; ++i) jobs.push_back(pool.submit("nothing", std::string(60'000, 'a')));
  pool.resume();
  for (Job& job : jobs) CHECK(status_of(job) == job_status::ok);
  CHECK(pool.report().deaths.empty());
}

TEST_CASE("borrowed argument bytes are released when the job has ended") {
  Pool pool(odd_jobs(1), quietly());
  auto held = std::make_shared<std::string>("borrowed");
  const std::weak_ptr<std::string> watch = held;
  const auto bytes = std::as_bytes(std::span(*held));
  Job job = pool.submit("echo", Argument::borrowed(bytes, std::move(held)));
  CHECK(job.get().text() == "borrowed");
  CHECK(watch.expired());
}

TEST_CASE("the submitting thread does not free the argument of a job that is refused at once") {
  // The submitting thread may hold a lock that freeing the argument takes, too.
  Pool pool(odd_jobs(1), quietly());
  pool.submit("nothing", {}).get();
  for (int i = 0; i < 100; ++i) {
    const auto bytes = std::make_shared<std::string>("borrowed");
    std::promise<std::thread::id> freed;
    auto where = freed.get_future();
    Job job = pool.submit("no_such_function",
                          Argument::borrowed(std::as_bytes(std::span(*bytes)),
                                             std::shared_ptr<const void>(bytes.get(), [&](const void*) {
                                               freed.set_value(std::this_thread::get_id());
                                             })));
    CHECK(status_of(job) == job_status::exception);
    CHECK(where.get() != std::this_thread::get_id());
  }
}

TEST_CASE("jobs that several threads submit one at a time while the pool closes all end") {
  for (int round = 0; round < 20; ++round) {
    Pool pool(odd_jobs(2), quietly());
    pool.submit("nothing", {}).get();
    std::atomic<int> ended = 0;
    std::atomic<int> ended_otherwise = 0;
    std::vector<std::thread> callers;
    for (int t = 0; t < 3; ++t) {
      callers.emplace_back([&] {
        while (true) {
          try {
            Job job = pool.submit("nothing", "argument");
            const job_status how = status_of(job);
            ++ended;
            if (how == job_status::cancelled) return;
            if (how != job_status::ok) ++ended_otherwise;
          } catch (const error& refused) {
            if (refused.code() != errc::stopped) throw;
            return;
          }
        }
      });
    }
    await([&] { return ended > 50; });
    pool.close();
    for (std::thread& t : callers) t.join();
    CHECK(ended_otherwise == 0);
    const pool_statistics all = pool.statistics();
    CHECK(adds_up(all));
    CHECK(std::tuple(all.waiting, all.running, all.argument_bytes) == std::tuple(0U, 0U, 0U));
  }
}

TEST_CASE("a result outlives its pool") {
  std::optional<Result> large;
  std::optional<Result> looked_at;
  std::optional<Job> job;
  {
    Pool pool(odd_jobs(1), quietly());
    large = pool.submit("fill", "500000").get();
    looked_at = pool.submit("fill", "400000").get();
    CHECK(looked_at->bytes().size() == 400'000);
    job = pool.submit("double", "4");
    REQUIRE(job->wait_for(20s));
  }
  CHECK(large->bytes().size() == 500'000);
  CHECK(large->bytes()[31] == static_cast<std::byte>(31 * 31));
  CHECK(looked_at->bytes()[31] == static_cast<std::byte>(31 * 31));
  CHECK(job->get().text() == "8");
}

TEST_CASE("a result can be taken once, and an error any number of times") {
  Pool pool(odd_jobs(1), quietly());
  Job job = pool.submit("double", "4");
  CHECK(job.get().text() == "8");
  CHECK(code_of([&] { job.get(); }) == errc::usage);
  Job bad = pool.submit("throws", "x");
  CHECK(status_of(bad) == job_status::exception);
  CHECK(status_of(bad) == job_status::exception);
  Job none;
  CHECK(code_of([&] { none.get(); }) == errc::usage);
}

TEST_CASE("map gives outcomes in the order of inputs and takes inputs lazily") {
  Pool pool(odd_jobs(2), quietly());
  int taken = 0;
  auto outcomes = pool.map(
      "sleep",
      [&]() -> std::optional<Argument> {
        return taken < 60 ? std::optional<Argument>(std::to_string(taken++ % 3)) : std::nullopt;
      },
      {}, 8);
  std::uint64_t next = 0;
  while (auto one = outcomes.next()) {
    CHECK(one->index == next++);
    CHECK(one->job.get().text() == "awake");
    CHECK(taken <= static_cast<int>(next) + 8);
  }
  CHECK(next == 60);
}

TEST_CASE("map_unordered gives each outcome once, the quick ones first") {
  Pool pool(odd_jobs(2), quietly());
  int taken = 0;
  auto outcomes = pool.map_unordered(
      "sleep",
      [&]() -> std::optional<Argument> {
        if (taken == 20) return std::nullopt;
        return std::to_string(taken++ == 0 ? 600 : 1);
      },
      {}, 20);
  std::vector<std::uint64_t> order;
  while (auto one = outcomes.next()) order.push_back(one->index);
  CHECK(order.back() == 0);
  CHECK(std::set<std::uint64_t>(order.begin(), order.end()).size() == 20);
}

TEST_CASE("destroying a mapping cancels its running jobs") {
  Pool pool(odd_jobs(2), quietly());
  {
    auto outcomes = pool.map(
        "sleep", []() -> std::optional<Argument> { return "20"; }, {}, 50);
    CHECK(outcomes.next());
  }
  CHECK(pool.finish(20s));
  CHECK(pool.statistics().cancelled > 0);
  CHECK(pool.statistics().failed == 0);
}

TEST_CASE("a job with its own number is shown with it in errors and events, and its attempts and its time are known") {
  config c = odd_jobs(1);
  c.jobs.memory = {1U << 20U};
  std::promise<std::string> told;
  pool_options listening = quietly();
  listening.on_event = [&](const event& what) {
    if (what.kind == event_kind::job_failed) told.set_value(what.text);
  };
  Pool pool(c, std::move(listening));
  job_options options;
  options.known_as = 41;
  bool taken = false;
  auto outcomes = pool.map("echo", [&] { return std::exchange(taken, true) ? std::nullopt : std::optional<Argument>(std::string(2U << 20U, 'a')); }, options);
  Job refused = outcomes.next().value().job;
  CHECK_THROWS_WITH(refused.get(), Catch::Matchers::StartsWith("job 41: too_large"));
  CHECK(told.get_future().get().starts_with("job 41 (echo): too_large"));
  Job running = pool.submit("hang", {}, options);
  await([&] { return running.attempts() == 1; });
  running.kill();
  CHECK(status_of(running) == job_status::cancelled);
  CHECK(running.why()->ran);
}

TEST_CASE("a job that its program repeats counts once, even if the repetition cannot be submitted") {
  config c = odd_jobs(1);
  c.jobs.memory = {1U << 20U};
  pool_options options = quietly();
  options.judged = true;
  Pool pool(c, std::move(options));
  job_options again;
  again.again = true;
  const auto counts = [&] {
    const pool_statistics all = pool.statistics();
    CHECK(adds_up(all));
    return std::tuple(all.submitted, all.waiting, all.running, all.failed);
  };
  CHECK(status_of(pool.submit("throws", "once")) == job_status::exception);
  CHECK(counts() == std::tuple(1U, 0U, 1U, 0U));
  CHECK(status_of(pool.submit("throws", "twice", again)) == job_status::exception);
  CHECK(counts() == std::tuple(1U, 0U, 1U, 0U));
  CHECK(code_of([&] { pool.submit("throws", std::string(2U << 20U, 'a'), again); }) == errc::out_of_memory);
  CHECK(counts() == std::tuple(1U, 0U, 1U, 0U));
  pool.judge("throws", job_verdict::failed);
  CHECK(counts() == std::tuple(1U, 0U, 0U, 1U));
}

TEST_CASE("a mapping of a stopped pool yields every outcome in flight, and then the reason") {
  for (const bool ordered : {true, false}) {
    Pool pool(odd_jobs(1), quietly());
    int taken = 0;
    const Pool::source inputs = [&]() -> std::optional<Argument> { return taken++ < 3 ? "0" : "20000"; };
    auto outcomes = ordered ? pool.map("sleep", inputs, {}, 5) : pool.map_unordered("sleep", inputs, {}, 5);
    REQUIRE(outcomes.next());
    await([&] { return pool.statistics().ok == 3; });
    pool.stop();
    std::map<std::uint64_t, job_status> found;
    std::optional<errc> end;
    for (int i = 0; i < 20 && !end; ++i) {
      end = code_of([&] {
        const auto one = outcomes.next();
        REQUIRE(one);
        found[one->index] = status_of(one->job);
      });
    }
    CHECK(end == errc::stopped);
    CHECK(code_of([&] { outcomes.next(); }) == errc::stopped);
    using enum job_status;
    CHECK(found == std::map<std::uint64_t, job_status>{{1, ok}, {2, ok}, {3, cancelled}, {4, cancelled}});
  }
}

TEST_CASE("a mapping can be read in a callback") {
  Pool pool(odd_jobs(1), quietly());
  std::promise<int> read;
  pool.submit("double", "1").then([&](const Job&) {
    int left = 3;
    auto outcomes = pool.map_unordered("double", [&]() -> std::optional<Argument> {
      return left-- > 0 ? std::optional<Argument>("2") : std::nullopt;
    });
    int count = 0;
    while (outcomes.next()) ++count;
    read.set_value(count);
  });
  auto count = read.get_future();
  REQUIRE(count.wait_for(20s) == std::future_status::ready);
  CHECK(count.get() == 3);
}

TEST_CASE("a job that exceeds its timeout is ended and named, and its sibling continues") {
  Pool pool(odd_jobs(2), quietly());
  Job slow = pool.submit("hang", {}, {.timeout = 300ms});
  std::vector<Job> others;
  for (int i = 0; i < 50; ++i) others.push_back(pool.submit("sleep", "5", {.timeout = 10s}));
  const auto begun = std::chrono::steady_clock::now();
  CHECK(status_of(slow) == job_status::timed_out);
  CHECK(std::chrono::steady_clock::now() - begun >= 250ms);
  CHECK(slow.why()->text.find("hang took longer than its timeout of 300 ms") != std::string::npos);
  CHECK(slow.why()->ran >= 300ms);
  CHECK(slow.why()->ran < std::chrono::steady_clock::now() - begun + 1s);
  for (Job& job : others) CHECK(job.get().text() == "awake");
}

TEST_CASE(
    "a cancelled job never starts if it waits, loses its worker if it runs, and is unchanged if it has ended") {
  Pool pool(odd_jobs(1), quietly());
  Job running = pool.submit("hang", {});
  Job waiting = pool.submit("double", "1");
  Job after = pool.submit("double", "2");
  await([&] { return pool.status().workers.size() == 1 && pool.status().workers[0].current_sample; });
  CHECK(waiting.cancel_if_waiting());
  CHECK(status_of(waiting) == job_status::cancelled);
  CHECK_FALSE(waiting.why()->ran);
  CHECK(!running.cancel_if_waiting());
  CHECK(!running.done());
  CHECK(running.cancel());
  CHECK(status_of(running) == job_status::cancelled);
  CHECK(running.why()->text == "it was cancelled while it ran");
  CHECK(after.get().text() == "4");
  CHECK(!after.cancel());
  CHECK(!waiting.cancel());
}

TEST_CASE("kill ends a running job without waiting for its worker's stack") {
  Pool pool(odd_jobs(1), quietly());
  Job running = pool.submit("hang", {});
  await([&] { return pool.status().workers.size() == 1 && pool.status().workers[0].current_sample; });
  const auto begun = std::chrono::steady_clock::now();
  CHECK(running.kill());
  CHECK(status_of(running) == job_status::cancelled);
  CHECK(std::chrono::steady_clock::now() - begun < 1500ms);
}

TEST_CASE("a callback runs once per job, may submit, and never runs on the caller's thread") {
  Pool pool(odd_jobs(2), quietly());
  std::atomic<int> heard = 0;
  std::atomic<bool> here = false;
  std::latch all(20);
  const auto caller = std::this_thread::get_id();
  for (int i = 0; i < 10; ++i) {
    pool.submit("double", std::to_string(i)).then([&](Job first) {
      if (std::this_thread::get_id() == caller) here = true;
      ++heard;
      all.count_down();
      pool.submit("double", std::string(first.get().text())).then([&](Job) {
        ++heard;
        all.count_down();
      });
    });
  }
  all.wait();
  CHECK(heard == 20);
  CHECK(!here);
  Job done = pool.submit("double", "5");
  REQUIRE(done.wait_for(10s));
  std::latch late(1);
  done.then([&](Job) { late.count_down(); });
  late.wait();
}

TEST_CASE("many threads may submit at once") {
  Pool pool(odd_jobs(2), quietly());
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Job> jobs;
      for (int i = 0; i < 300; ++i) jobs.push_back(pool.submit("double", std::to_string(1000 * t + i)));
      for (int i = 0; i < 300; ++i)
        wrong += jobs[i].get().text() == std::to_string(2 * (1000 * t + i)) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("finish() waits for submitted jobs and accepts no more") {
  Pool pool(odd_jobs(2), quietly());
  std::vector<Job> jobs;
  for (int i = 0; i < 20; ++i) jobs.push_back(pool.submit("sleep", "10"));
  CHECK(pool.finish(20s));
  for (Job& job : jobs) CHECK(job.done());
  CHECK(code_of([&] { pool.submit("double", "1"); }) == errc::stopped);
}

TEST_CASE("destroying a pool cancels its running jobs within a second") {
  std::vector<Job> jobs;
  std::chrono::steady_clock::time_point begun;
  {
    Pool pool(odd_jobs(2), quietly());
    for (int i = 0; i < 30; ++i) jobs.push_back(pool.submit("hang", {}));
    await([&] { return pool.statistics().running >= 2; });
    begun = std::chrono::steady_clock::now();
  }
  CHECK(std::chrono::steady_clock::now() - begun < 1500ms);
  for (Job& job : jobs) CHECK(status_of(job) == job_status::cancelled);
}

TEST_CASE("a pool may be destroyed from a job's callback") {
  std::optional<Pool> pool(std::in_place, odd_jobs(1), quietly());
  std::latch gone(1);
  Job job = pool->submit("double", "1");
  job.then([&](Job) {
    pool.reset();
    gone.count_down();
  });
  gone.wait();
  CHECK(job.get().text() == "2");
}

TEST_CASE("waiting callbacks run in groups of up to 64, each inside one call of around_callbacks") {
  std::vector<int> together;
  int inside = 0;
  int called = 0;
  std::latch first_runs(1);
  std::latch all_have_ended(1);
  pool_options options = quietly();
  options.around_callbacks = [&](const std::function<void()>& callbacks) {
    inside = 0;
    callbacks();
    together.push_back(inside);
  };
  Pool pool(odd_jobs(1), std::move(options));
  pool.submit("double", "1").then([&](const Job&) {
    ++inside;
    first_runs.count_down();
    all_have_ended.wait();
  });
  first_runs.wait();
  for (int i = 0; i < 100; ++i) {
    pool.submit("double", "1").then([&](const Job&) {
      ++inside;
      ++called;
    });
  }
  // The only worker runs one job at a time. So when this job ends, the callbacks of all earlier jobs are in the queue.
  CHECK(pool.submit("double", "1").get().text() == "2");
  all_have_ended.count_down();
  REQUIRE(pool.finish(20s));
  pool.close();
  CHECK(called == 100);
  CHECK(together == std::vector{1, 64, 36});
}

TEST_CASE("a callback requested after the pool was closed runs once, before then() returns") {
  std::optional<Job> ended;
  std::optional<Job> cut_short;
  int calls = 0;
  {
    Pool pool(odd_jobs(1), quietly());
    ended = pool.submit("double", "1");
    REQUIRE(ended->wait_for(20s));
    cut_short = pool.submit("hang", {});
    pool.close();
    ended->then([&](Job job) { calls += job.get().text() == "2" ? 1 : 100; });
    CHECK(calls == 1);
    cut_short->then([&](const Job& job) { calls += job.why() ? 1 : 100; });
    CHECK(calls == 2);
  }
  ended->then([&](const Job&) { ++calls; });
  ended->then([&](const Job&) { throw std::runtime_error("a callback's own"); });
  CHECK(calls == 3);
}

TEST_CASE("a job for a nonexistent worker is refused at once, with the number of workers") {
  Pool pool(odd_jobs(2), quietly());
  try {
    pool.submit("double", "1", {.worker = 1'000'000});
    FAIL("it was accepted");
  } catch (const error& refused) {
    CHECK(refused.code() == errc::usage);
    CHECK(std::string(refused.what()) ==
          "submitting a job for worker 1000000: there are 2 workers, numbers 0 to 1");
  }
  CHECK(code_of([&] { pool.try_submit("double", "1", {.worker = 2}); }) == errc::usage);
  CHECK(pool.submit("double", "1", {.worker = 1}).get().text() == "2");
}

TEST_CASE("a job that was running when the pool was stopped counts that attempt") {
  Pool pool(odd_jobs(1), quietly());
  Job running = pool.submit("hang", {});
  Job waiting = pool.submit("hang", {});
  await([&] { return running.attempts() == 1; });
  pool.stop();
  CHECK(status_of(running) == job_status::cancelled);
  CHECK(running.why()->attempts == 1);
  CHECK(running.attempts() == 1);
  CHECK(status_of(waiting) == job_status::cancelled);
  CHECK(waiting.why()->attempts == 0);
}

TEST_CASE("pausing holds back new jobs, and resuming releases them") {
  Pool pool(odd_jobs(1), quietly());
  CHECK(pool.submit("double", "1").get().text() == "2");
  pool.pause();
  Job held = pool.submit("double", "2");
  CHECK(!held.wait_for(100ms));
  pool.resume();
  CHECK(held.get().text() == "4");
}

TEST_CASE("a pool can be scaled while it works") {
  Pool pool(odd_jobs(1), quietly());
  std::vector<Job> jobs;
  for (int i = 0; i < 100; ++i) jobs.push_back(pool.submit("sleep", "2"));
  pool.scale(3);
  await([&] { return pool.status().workers.size() == 3; });
  pool.scale(1);
  for (Job& job : jobs) CHECK(job.get().text() == "awake");
}

TEST_CASE("a job marked fresh runs in a process that has run no other job") {
  Pool pool(odd_jobs(1), quietly());
  CHECK(pool.submit("count_runs", {}).get().text() == "1");
  CHECK(pool.submit("count_runs", {}).get().text() == "2");
  CHECK(pool.submit("count_runs", {}, {.fresh = true}).get().text() == "1");
  CHECK(pool.submit("count_runs", {}, {.fresh = true}).get().text() == "1");
}

TEST_CASE("a config that is not for a pool is refused with its key") {
  config c = odd_jobs(1);
  c.jobs.queue = 0;
  try {
    Pool pool(c, quietly());
    FAIL("it was accepted");
  } catch (const error& refused) {
    CHECK(refused.code() == errc::config);
    CHECK(std::string(refused.what()).find("jobs.queue") != std::string::npos);
  }
}
