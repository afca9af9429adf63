// Jobs whose results go to the device: device programs, results that stay there, and everything that can go
// wrong with either. Runs in both placements where that makes no difference.
#include "tests/actors/jobs/device_support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <signal.h>
#include <unistd.h>

#include <numeric>
#include <set>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

placement_rule either_placement() {
  return GENERATE(placement_rule::embedded, placement_rule::process);
}

unsigned long long sum_of_filled(std::size_t bytes) {
  unsigned long long sum = 0;
  for (std::size_t i = 0; i < bytes; ++i) sum += static_cast<unsigned char>(i * 31);
  return sum;
}

/// A worker program's "fill" makes bytes, the first of which is 0; the device program adds them up.
Job sum(Pool& pool, std::size_t bytes) {
  return pool.submit("fill", std::to_string(bytes), to_odd());
}

}  // namespace

TEST_CASE("a device program answers every job result that fits the slot with its own result") {
  Pool pool(with_programs(either_placement()), quietly());
  for (const std::size_t bytes : {1UL, 63UL, 64UL, 4096UL, 16384UL, 16385UL, 700'000UL, 1'000'000UL}) {
    CAPTURE(bytes);
    CHECK(number_in(sum(pool, bytes).get()) == sum_of_filled(bytes));
  }
  CHECK(pool.submit("nothing", {}, to_odd()).get().bytes().size() == sizeof(unsigned long long));
  CHECK(odd(pool, "nothing").get().bytes().empty());
  CHECK(odd(pool, "text that comes back").get().text() == "text that comes back");
}

TEST_CASE(
    "a thousand jobs with device programs each return their own result once, alongside jobs without one") {
  Pool pool(with_programs(either_placement()), quietly());
  std::vector<Job> at_device;
  std::vector<Job> plain;
  for (int i = 0; i < 1000; ++i) {
    at_device.push_back(sum(pool, 1 + i * 7));
    plain.push_back(pool.submit("double", std::to_string(i)));
  }
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(number_in(at_device[i].get()) == sum_of_filled(1 + i * 7));
    REQUIRE(plain[i].get().text() == std::to_string(2 * i));
  }
  const pool_statistics all = pool.statistics();
  CHECK(all.ok == 2000);
  CHECK(all.running == 0);
}

TEST_CASE("several programs serve one pool") {
  Pool pool(with_programs(either_placement()), quietly());
  job_options moments;
  moments.program = "moments";
  const Result result = pool.submit("echo", std::string(1000, 'a'), moments).get();
  CHECK(result.text() == "{\"bytes\":1000,\"mean\":97.0000,\"variance\":0.0000}");
  CHECK(odd(pool, "hello").get().text() == "hello");
}

TEST_CASE("one process runs all device programs, whatever the number of jobs and workers") {
  const placement_rule placement = either_placement();
  Pool pool(with_programs(placement, 4), quietly());
  std::vector<Job> jobs;
  for (int i = 0; i < 200; ++i) jobs.push_back(odd(pool, "pid"));
  std::set<std::string> pids;
  for (Job& job : jobs) pids.emplace(job.get().text());
  REQUIRE(pids.size() == 1);
  const bool ours = *pids.begin() == std::to_string(::getpid());
  CHECK(ours == (placement == placement_rule::embedded));
  if (!ours) CHECK(*pids.begin() == std::to_string(pool.status().gpu_pid.value()));
}

// ---- results that stay on the device ----------------------------------------------------------------------------

TEST_CASE("a result stays on the device if the job asked for that, with or without a program") {
  Pool pool(with_programs(placement_rule::embedded), quietly());
  for (const bool program : {false, true}) {
    job_options options = kept_on_device();
    if (program) options.program = "odd";
    Result result = pool.submit("fill", "300001", options).get();
    REQUIRE(result.on_device());
    const tensor_view view = result.tensor();
    CHECK(view.name == "result");
    CHECK(view.type == dtype::uint8);
    CHECK(view.shape == std::vector<std::uint64_t>{300'001});
    CHECK(reinterpret_cast<std::uintptr_t>(view.data) % 256 == 0);
    CHECK(view.on_host == (tested_device() == "host"));
    const auto copy = result.read_back();
    REQUIRE(copy.size() == 300'001);
    for (std::size_t i = 0; i < copy.size(); i += 997) REQUIRE(copy[i] == static_cast<std::byte>(i * 31));
    if (view.on_host) CHECK(result.bytes().size() == 300'001);
    if (!view.on_host) CHECK(code_of([&] { static_cast<void>(result.bytes()); }) == errc::usage);
    result.release({});
    CHECK(code_of([&] { static_cast<void>(result.tensor()); }) == errc::usage);
  }
  CHECK(pool.submit("nothing", {}, kept_on_device()).get().read_back().empty());
  Result plain = pool.submit("double", "4").get();
  CHECK_FALSE(plain.on_device());
  CHECK(code_of([&] { static_cast<void>(plain.tensor()); }) == errc::usage);
}

TEST_CASE("device results arrive as fast as the caller frees them, however many there are") {
  Pool pool(with_programs(placement_rule::embedded), quietly());
  std::vector<Job> jobs;
  for (int i = 0; i < 200; ++i)
    jobs.push_back(pool.submit("fill", std::to_string(1000 + i), kept_on_device()));
  for (int i = 0; i < 200; ++i) CHECK(jobs[i].get().read_back().size() == 1000U + i);
}

TEST_CASE("a device result throws after the pool is closed, and can still be destroyed") {
  std::optional<Result> kept;
  {
    Pool pool(with_programs(placement_rule::embedded), quietly());
    kept = pool.submit("fill", "5000", kept_on_device()).get();
    CHECK(kept->read_back().size() == 5000);
  }
  CHECK(code_of([&] { static_cast<void>(kept->tensor()); }) == errc::usage);
  CHECK(code_of([&] { static_cast<void>(kept->read_back()); }) == errc::usage);
  CHECK(code_of([&] { kept->release({}); }) == errc::usage);
}

TEST_CASE(
    "a caller that keeps all device buffers learns that the next job waits, and that job runs when one is freed") {
  config c = with_programs(placement_rule::embedded);
  c.gpu.buffers = 2;
  std::vector<std::string> told;
  std::mutex mutex;
  pool_options options = quietly();
  options.on_event = [&](const event& what) {
    const std::lock_guard hold(mutex);
    if (what.kind == event_kind::stalled) told.push_back(what.text);
  };
  Pool pool(c, std::move(options));
  std::vector<Result> kept;
  for (const std::uint64_t number : {41, 42}) {
    job_options known = kept_on_device();
    known.known_as = number;
    kept.push_back(pool.submit("fill", "100", known).get());
  }
  Job third = pool.submit("fill", "100", kept_on_device());
  std::string why;
  try {
    third.get();
  } catch (const error& waits) {
    CHECK(waits.code() == errc::usage);
    why = waits.what();
  }
  CHECK(why.find("2 of 2 device buffers hold results that the program has not released (of jobs 41, 42)") !=
        std::string::npos);
  await([&] {
    const std::lock_guard hold(mutex);
    return told.size() == 1;
  });
  kept.pop_back();
  CHECK(third.get().read_back().size() == 100);
}

// ---- what fails one job -------------------------------------------------------------------------------------------

TEST_CASE("an exception or an impossible request of a program fails only its own job") {
  Pool pool(with_programs(either_placement()), quietly());
  const job_failure thrown = failure_of(odd(pool, "throw up"));
  CHECK(thrown.status == job_status::device);
  CHECK(thrown.text == "the device program 'odd': std::invalid_argument: no good: up");
  CHECK(thrown.attempts == 1);
  CHECK(failure_of(odd(pool, "throw_int")).status == job_status::device);
  const job_failure memory = failure_of(odd(pool, "memory"));
  CHECK(memory.status == job_status::device);
  CHECK(memory.text.find("TiB") != std::string::npos);
  CHECK(failure_of(odd(pool, "allocate")).status == job_status::device);
  CHECK(failure_of(odd(pool, "large")).status == job_status::too_large);
  CHECK(number_in(sum(pool, 5000).get()) == sum_of_filled(5000));
  CHECK(pool.statistics().failed == 5);
}

TEST_CASE("a CUDA error left by a program fails its own job, not the next one") {
  if (tested_device() == "host") SKIP("the host device has no such errors");
  Pool pool(with_programs(either_placement()), quietly());
  const job_failure left = failure_of(odd(pool, "leave_error"));
  CHECK(left.status == job_status::device);
  CHECK(left.text.find("out of memory") != std::string::npos);
  CHECK(number_in(sum(pool, 5000).get()) == sum_of_filled(5000));
}

TEST_CASE(
    "a result that does not fit its slot is too large for the device, and the next result is not affected") {
  Pool pool(with_programs(either_placement()), quietly());
  const job_failure large = failure_of(sum(pool, 3'000'000));
  CHECK(large.status == job_status::too_large);
  CHECK(large.text.find("[loader] slot_bytes") != std::string::npos);
  CHECK(number_in(sum(pool, 5000).get()) == sum_of_filled(5000));
}

TEST_CASE(
    "a failed function does not reach the device, and no job loses its device result when a worker dies") {
  Pool pool(with_programs(either_placement()), quietly());
  CHECK(failure_of(pool.submit("throws", "x", to_odd())).status == job_status::exception);
  CHECK(pool.submit("kill_once", {}, to_odd()).get().text() == "alive");
}

TEST_CASE("a request that the pool's device cannot fulfil is refused at submission") {
  Pool without(odd_jobs(1), quietly());
  CHECK(code_of([&] { without.submit("echo", "x", to_odd()); }) == errc::usage);
  CHECK(code_of([&] { without.submit("echo", "x", kept_on_device()); }) == errc::usage);
  Pool pool(with_programs(placement_rule::process), quietly());
  CHECK(code_of([&] { pool.submit("echo", "x", kept_on_device()); }) == errc::usage);
  job_options unknown;
  unknown.program = "none such";
  CHECK(code_of([&] { pool.submit("echo", "x", unknown); }) == errc::usage);
  config missing = with_programs(placement_rule::process);
  missing.jobs.programs["gone"] = "/there/is/no/such.so";
  CHECK(code_of([&] { Pool(missing, quietly()); }) == errc::config);
}

TEST_CASE("a shared library without a device program fails the jobs that name it") {
  config c = with_programs(either_placement());
  c.jobs.programs["wrong"] = beside("odd-jobs");
  Pool pool(c, quietly());
  job_options wrong;
  wrong.program = "wrong";
  CHECK(failure_of(pool.submit("echo", "x", wrong)).status == job_status::device);
  CHECK(odd(pool, "hello").get().text() == "hello");
}

// ---- owners that die ----------------------------------------------------------------------------------------------

TEST_CASE("an owner that dies with a hundred results in transit loses none, and none arrives twice") {
  config c = with_programs(placement_rule::process);
  c.gpu.restart.intensity.max = 100;
  Pool pool(c, quietly());
  REQUIRE(number_in(sum(pool, 100).get()) == sum_of_filled(100));
  const signal_file go;
  Job first = odd(pool, "wait " + go.path());
  std::vector<Job> jobs;
  for (int i = 0; i < 100; ++i) jobs.push_back(sum(pool, 1000 + i));
  session_status seen;
  std::optional<std::int32_t> killed;
  const auto another_is_ready = [&] {
    seen = pool.status();
    return seen.gpu_state == child_state::ready && seen.gpu_pid && seen.gpu_pid != killed;
  };
  for (int round = 0; round < 3; ++round) {
    await(another_is_ready);
    killed = seen.gpu_pid;
    kill_process(*killed);
  }
  await(another_is_ready);
  go.give();
  CHECK(first.get().text() == "waited");
  for (int i = 0; i < 100; ++i) REQUIRE(number_in(jobs[i].get()) == sum_of_filled(1000 + i));
  CHECK(pool.statistics().ok == 102);
  CHECK(pool.report().owner_deaths.size() == 3);
}

TEST_CASE("a job that kills two owners is poisoned with both deaths; its neighbours and later jobs succeed") {
  config c = with_programs(placement_rule::process);
  Pool pool(c, quietly());
  std::vector<Job> before;
  for (int i = 0; i < 10; ++i) before.push_back(sum(pool, 1000 + i));
  Job bad = odd(pool, tested_device() == "host" ? "crash" : "illegal");
  std::vector<Job> after;
  for (int i = 0; i < 10; ++i) after.push_back(sum(pool, 2000 + i));
  const job_failure why = failure_of(bad);
  CHECK(why.status == job_status::poisoned);
  CHECK(why.causes.size() == 2);
  CHECK(why.attempts == 1);
  for (int i = 0; i < 10; ++i) {
    CHECK(number_in(before[i].get()) == sum_of_filled(1000 + i));
    CHECK(number_in(after[i].get()) == sum_of_filled(2000 + i));
  }
  CHECK(number_in(sum(pool, 3000).get()) == sum_of_filled(3000));
}

TEST_CASE("a job that kills only its first owner still gets its result") {
  const signal_file file;
  Pool pool(with_programs(placement_rule::process), quietly());
  CHECK(odd(pool, "crash_once " + file.path()).get().text() == "alive");
}

TEST_CASE(
    "a program that never ends counts as a hang of its owner, and its job is poisoned after the second") {
  config c = with_programs(placement_rule::process);
  c.gpu.hang.batch_timeout = tested_device() == "host" ? 300ms : 3s;
  Pool pool(c, quietly());
  REQUIRE(number_in(sum(pool, 100).get()) == sum_of_filled(100));
  const job_failure why = failure_of(odd(pool, "hang"));
  CHECK(why.status == job_status::poisoned);
  REQUIRE(why.causes.size() == 2);
  CHECK(why.causes[0].find("its device program has been working on the result of job 2 (echo)") !=
        std::string::npos);
  CHECK(number_in(sum(pool, 100).get()) == sum_of_filled(100));
}

TEST_CASE("a job that is not idempotent does not reach a second owner") {
  Pool pool(with_programs(placement_rule::process), quietly());
  const signal_file go;
  job_options once = to_odd();
  once.idempotent = false;
  Job job = pool.submit("echo", "wait " + go.path(), once);
  go.await_begin();
  const std::int32_t pid = pool.status().gpu_pid.value();
  Job behind = odd(pool, "hello");
  kill_process(pid);
  CHECK(behind.get().text() == "hello");
  CHECK(failure_of(job).status == job_status::worker_lost);
}

TEST_CASE("an owner that cannot restart fails the jobs that need the device, and no others") {
  config c = with_programs(placement_rule::process);
  c.gpu.restart.intensity.max = 1;
  Pool pool(c, quietly());
  std::vector<Job> bad;
  for (int i = 0; i < 3; ++i) bad.push_back(odd(pool, "crash"));
  for (Job& job : bad) CHECK(failure_of(job).status != job_status::ok);
  await([&] { return pool.status().gpu_state == child_state::failed; });
  CHECK(failure_of(odd(pool, "hello")).status == job_status::device);
  CHECK(pool.submit("double", "21").get().text() == "42");
}

TEST_CASE("a missing device fails the jobs that need it, and no others") {
  config c = with_programs(either_placement());
  c.gpu.device = "uuid:GPU-00000000-0000-0000-0000-000000000000";
  std::optional<Pool> pool;
  try {
    pool.emplace(c, quietly());
  } catch (const error& refused) {
    CHECK(refused.code() == errc::device_unavailable);  // this build has no such kind of device
    return;
  }
  CHECK(failure_of(odd(*pool, "hello")).status == job_status::device);
  CHECK(pool->submit("double", "21").get().text() == "42");
}

// ---- cancelling, and the end --------------------------------------------------------------------------------------

TEST_CASE("a job whose result is on the device can be cancelled, in use or queued, and its slot is reused") {
  config c = with_programs(either_placement(), 1);
  Pool pool(c, quietly());
  const signal_file go;
  Job in_hand = odd(pool, "wait " + go.path());
  Job behind = odd(pool, "hello");
  go.await_begin();
  await([&] { return pool.statistics().running == 2; });
  CHECK(behind.cancel());
  CHECK(failure_of(behind).status == job_status::cancelled);
  CHECK_FALSE(in_hand.cancel_if_waiting());
  CHECK(in_hand.kill());
  CHECK(failure_of(in_hand).status == job_status::cancelled);
  CHECK_FALSE(in_hand.cancel());
  const pool_statistics now = pool.statistics();
  CHECK(std::tuple(now.submitted, now.waiting, now.running, now.cancelled) == std::tuple(2U, 0U, 0U, 2U));
  go.give();
  for (int i = 0; i < 20; ++i) CHECK(number_in(sum(pool, 500'000 + i).get()) == sum_of_filled(500'000 + i));
}

TEST_CASE("a pool closed while results are on the device ends all of them in time") {
  const placement_rule placement = either_placement();
  const signal_file go;
  std::vector<Job> jobs;
  const auto begun = std::chrono::steady_clock::now();
  {
    Pool pool(with_programs(placement), quietly());
    jobs.push_back(odd(pool, "wait " + go.path()));
    go.await_begin();  // the device is busy, so later jobs end when the pool closes
    for (int i = 0; i < 20; ++i) jobs.push_back(sum(pool, 1000));
    await([&] { return pool.statistics().running > 1; });
    pool.close();
    for (Job& job : jobs) CHECK(failure_of(job).status == job_status::cancelled);
  }
  CHECK(std::chrono::steady_clock::now() - begun < 20s);
}

TEST_CASE("finish() also waits for results on the device") {
  Pool pool(with_programs(either_placement()), quietly());
  const signal_file go;
  Job job = odd(pool, "wait " + go.path());
  CHECK_FALSE(pool.finish(100ms));
  go.give();
  CHECK(pool.finish(20s));
  CHECK(job.get().text() == "waited");
}
