// The behaviour of a pool with well-behaved jobs: results, order, bounds, timeouts, cancelling.
#include "tests/actors/jobs/support.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <set>
#include <thread>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

TEST_CASE("a job gives what its function made of its argument") {
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

TEST_CASE("a worker whose bundled jobs take longer than expected may report each of them") {
  Pool pool(odd_jobs(1), quietly());
  for (int i = 0; i < 50; ++i) pool.submit("sleep", "0").get();  // teach the pool that the function is quick
  pool.pause();
  std::vector<Job> jobs;
  for (int i = 0; i < 60; ++i) jobs.push_back(pool.submit("sleep", "2"));
  pool.resume();
  for (Job& job : jobs) CHECK(job.get().text() == "awake");
  CHECK(pool.report().deaths.empty());
}

TEST_CASE("an empty result and an empty argument are results and arguments") {
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

TEST_CASE("many quick jobs with arguments that do not fit their slot all get them") {
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

TEST_CASE("borrowed argument bytes are let go when the job has ended") {
  Pool pool(odd_jobs(1), quietly());
  auto held = std::make_shared<std::string>("borrowed");
  const std::weak_ptr<std::string> watch = held;
  const auto bytes = std::as_bytes(std::span(*held));
  Job job = pool.submit("echo", Argument::borrowed(bytes, std::move(held)));
  CHECK(job.get().text() == "borrowed");
  CHECK(watch.expired());
}

TEST_CASE("the argument of a job that is refused at once is not let go by the thread that submits it") {
  // That thread may hold a lock which whoever frees the argument takes.
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

TEST_CASE("jobs that several threads submit one at a time, while the pool is closed, all end") {
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
            Job job = pool.submit("nothing", {});
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
  }
}

TEST_CASE("a caller who keeps all results stops nobody") {
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

TEST_CASE("results that nobody takes leave their slots when others need them") {
  Pool pool(odd_jobs(1), quietly());
  std::vector<Job> jobs;
  for (int i = 0; i < 40; ++i) jobs.push_back(pool.submit("fill", "200000"));
  for (Job& job : jobs) REQUIRE(job.wait_for(20s));
  for (Job& job : jobs) CHECK(job.get().bytes().size() == 200'000);
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

TEST_CASE("a result is taken once, and an error can be asked for again") {
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

TEST_CASE("a mapping that is dropped cancels what is under way") {
  Pool pool(odd_jobs(2), quietly());
  {
    auto outcomes = pool.map(
        "sleep", []() -> std::optional<Argument> { return "20"; }, {}, 50);
    CHECK(outcomes.next());
  }
  CHECK(pool.finish(20s));
  CHECK(pool.statistics().failed > 0);
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
    FAIL("it was let in");
  } catch (const error& refused) {
    CHECK(refused.code() == errc::timed_out);
    CHECK(std::string(refused.what()).find("4 of 4 jobs wait ([jobs] queue)") != std::string::npos);
  }
  pool.resume();
  for (Job& job : jobs) CHECK(job.get().text() == "awake");
  CHECK(pool.submit("sleep", "1", {}, 10s).get().text() == "awake");
}

TEST_CASE("an argument beyond the pool's memory is refused, and submitting goes on") {
  config c = odd_jobs(1);
  c.jobs.memory = {8U << 20U};
  Pool pool(c, quietly());
  CHECK(code_of([&] { pool.submit("echo", std::vector<std::byte>(9U << 20U)); }) == errc::out_of_memory);
  CHECK(pool.submit("double", "1").get().text() == "2");
  CHECK(status_of(pool.submit("fill", std::to_string(9U << 20U))) == job_status::too_large);
  CHECK(pool.submit("double", "2").get().text() == "4");
}

TEST_CASE("a job that exceeds its time-out is ended and named, and its sibling goes on") {
  Pool pool(odd_jobs(2), quietly());
  Job slow = pool.submit("hang", {}, {.timeout = 300ms});
  std::vector<Job> others;
  for (int i = 0; i < 50; ++i) others.push_back(pool.submit("sleep", "5", {.timeout = 10s}));
  const auto begun = std::chrono::steady_clock::now();
  CHECK(status_of(slow) == job_status::timed_out);
  CHECK(std::chrono::steady_clock::now() - begun >= 250ms);
  CHECK(slow.why()->text.find("hang took longer than its time-out of 300 ms") != std::string::npos);
  for (Job& job : others) CHECK(job.get().text() == "awake");
}

TEST_CASE(
    "a waiting job that is cancelled never begins, a running one loses its worker, an ended one stays as it "
    "is") {
  Pool pool(odd_jobs(1), quietly());
  Job running = pool.submit("hang", {});
  Job waiting = pool.submit("double", "1");
  Job after = pool.submit("double", "2");
  await([&] { return pool.status().workers.size() == 1 && pool.status().workers[0].current_sample; });
  CHECK(waiting.cancel_if_waiting());
  CHECK(status_of(waiting) == job_status::cancelled);
  CHECK(!running.cancel_if_waiting());
  CHECK(!running.done());
  CHECK(running.cancel());
  CHECK(status_of(running) == job_status::cancelled);
  CHECK(running.why()->text == "it was ended while it ran");
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

TEST_CASE("callbacks hear of each job once, may submit, and never run on the caller's thread") {
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

TEST_CASE("finish waits for what is there and takes nothing more") {
  Pool pool(odd_jobs(2), quietly());
  std::vector<Job> jobs;
  for (int i = 0; i < 20; ++i) jobs.push_back(pool.submit("sleep", "10"));
  CHECK(pool.finish(20s));
  for (Job& job : jobs) CHECK(job.done());
  CHECK(code_of([&] { pool.submit("double", "1"); }) == errc::stopped);
}

TEST_CASE("a pool that is destroyed with jobs under way cancels them, within a second") {
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

TEST_CASE("pausing holds new jobs back and resuming lets them go") {
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

TEST_CASE("a fresh job runs in a process that has run nothing else") {
  Pool pool(odd_jobs(1), quietly());
  CHECK(pool.submit("count_runs", {}).get().text() == "1");
  CHECK(pool.submit("count_runs", {}).get().text() == "2");
  CHECK(pool.submit("count_runs", {}, {.fresh = true}).get().text() == "1");
  CHECK(pool.submit("count_runs", {}, {.fresh = true}).get().text() == "1");
}

TEST_CASE("a config that is no pool's is refused with its key") {
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
