// Misbehaving functions: each gets a typed error, other jobs are unaffected, and nothing is left behind.
#include "tests/actors/jobs/support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

/// Well-behaved jobs before, alongside and after the one under test.
class bystanders {
 public:
  explicit bystanders(Pool& pool) : pool_(pool) { add(); }
  ~bystanders() noexcept(false) {
    add();
    for (int i = 0; i < count_; ++i)
      CHECK(jobs_[static_cast<std::size_t>(i)].get().text() == std::to_string(2 * i));
  }
  bystanders(const bystanders&) = delete;
  bystanders& operator=(const bystanders&) = delete;

 private:
  void add() {
    for (int i = 0; i < 100; ++i, ++count_) jobs_.push_back(pool_.submit("double", std::to_string(count_)));
  }
  Pool& pool_;
  int count_ = 0;
  std::vector<Job> jobs_;
};

}  // namespace

TEST_CASE("calling a nonexistent function is an error that lists the existing ones") {
  Pool pool(odd_jobs(1), quietly());
  Job job = pool.submit("no_such", {});
  CHECK(status_of(job) == job_status::exception);
  CHECK(job.why()->type == "unknown_function");
  CHECK(job.why()->text.find("no function 'no_such'; it has: abort, ") != std::string::npos);
}

TEST_CASE("an exception comes back with its type and text") {
  Pool pool(odd_jobs(2), quietly());
  const bystanders others(pool);
  Job job = pool.submit("throws", "7");
  CHECK(status_of(job) == job_status::exception);
  CHECK(job.why()->type == "std::invalid_argument");
  CHECK(job.why()->text == "no good: 7");
  CHECK(job.attempts() == 1);
  Job own = pool.submit("throws_own", {});
  CHECK(status_of(own) == job_status::exception);
  CHECK(own.why()->type == "ZeroDivisionError");
  CHECK(own.why()->traceback == "line 1\nline 2");
  Job foreign = pool.submit("throws_int", {});
  CHECK(status_of(foreign) == job_status::exception);
  CHECK(foreign.why()->text.find("not a std::exception") != std::string::npos);
  CHECK(pool.status().workers_ended_unexpectedly == 0);
}

TEST_CASE("a job's error arrives complete even if its slot has no room for it") {
  config c = odd_jobs(1);
  c.loader.slot_bytes = byte_size{4096};
  Pool pool(c, quietly());
  for (const std::size_t bytes : {3'000U, 12'000U}) {
    const std::string argument(bytes, 'x');
    Job job = pool.submit("throws", argument);
    CHECK(status_of(job) == job_status::exception);
    CHECK(job.why()->text == "no good: " + argument);
  }
}

TEST_CASE("a job that kills every worker that tries it is poisoned after three deaths, with their causes") {
  Pool pool(odd_jobs(2), quietly());
  for (const auto& [function, argument, cause] :
       {std::tuple("abort", "", "SIGABRT"), std::tuple("segv", "", "SIGSEGV"),
        std::tuple("exit", "0", "exit 0"), std::tuple("exit", "3", "exit 3")}) {
    const bystanders others(pool);
    INFO(function << argument);
    Job job = pool.submit(function, argument);
    CHECK(status_of(job) == job_status::poisoned);
    CHECK(job.why()->causes == std::vector<std::string>(3, cause));
    CHECK(job.attempts() == 3);
  }
}

TEST_CASE("a death is blamed only on the running job, and finished jobs keep their results") {
  Pool pool(odd_jobs(2), quietly());
  const bystanders others(pool);
  Job job = pool.submit("kill_once", {});
  CHECK(job.get().text() == "alive");
  CHECK(job.attempts() == 2);
  Job twice = pool.submit("kill_twice", {});
  CHECK(twice.get().text() == "alive");
  CHECK(twice.attempts() == 3);
}

TEST_CASE("when workers die, large and small arguments still each reach their own job") {
  for (const std::uint32_t workers : {1U, 2U}) {
    config c = odd_jobs(workers);
    c.loader.limits.max = 4;
    Pool pool(c, quietly());
    std::vector<std::string> arguments;
    std::vector<Job> jobs;
    for (int i = 0; i < 300; ++i) {
      // Arguments that are small, large, and too large for the slot.
      const std::size_t bytes = i % 3 == 0 ? 20 : i % 3 == 1 ? 400'000 : 1'100'000;
      const std::string fault = i % 20 == 7 ? "kill" : i % 20 == 13 ? "exit" : "none";
      arguments.push_back(fault + " " + std::to_string(i) +
                          std::string(bytes, static_cast<char>('a' + i % 26)));
      jobs.push_back(pool.submit("odd", arguments.back()));
    }
    for (int i = 0; i < 300; ++i) {
      INFO(i);
      const Result result = jobs[i].get();
      REQUIRE(result.text() == arguments[i]);
      CHECK(jobs[i].attempts() == (arguments[i].starts_with("none") ? 1U : 2U));
    }
  }
}

TEST_CASE("a job that is not idempotent is never begun twice") {
  Pool pool(odd_jobs(2), quietly());
  const std::string file =
      std::filesystem::temp_directory_path() / fmt::format("penstock-begun-{}", ::getpid());
  std::filesystem::remove(file);
  Job job = pool.submit("begin_and_die", std::string(file), {.idempotent = false});
  CHECK(status_of(job) == job_status::worker_lost);
  CHECK(job.attempts() == 1);
  CHECK(pool.finish(10s));
  CHECK(std::filesystem::file_size(file) == 1);
  std::filesystem::remove(file);
}

TEST_CASE("a worker that stops itself is detected by its heartbeat, and its job is retried") {
  config c = odd_jobs(2);
  c.loader.hang.heartbeat_timeout = 300ms;
  Pool pool(c, quietly());
  const bystanders others(pool);
  Job job = pool.submit("stop_itself", {});
  CHECK(status_of(job) == job_status::poisoned);
  CHECK(job.why()->causes.size() == 3);
}

TEST_CASE("a function that closes its worker's link is blamed for the consequences") {
  Pool pool(odd_jobs(2), quietly());
  const bystanders others(pool);
  Job job = pool.submit("close_link", {});
  REQUIRE(job.wait_for(20s));
}

TEST_CASE("a child forked by a function does not continue as a second worker") {
  Pool pool(odd_jobs(2), quietly());
  const bystanders others(pool);
  CHECK(pool.submit("fork", {}).get().text() == "parent");
}

TEST_CASE("in a forked child of the program, jobs, results and mappings refuse calls and can be destroyed") {
  const auto refuses = [](const auto& use) {
    try {
      use();
      return false;
    } catch (const error& e) {
      return e.code() == errc::usage && std::string_view(e.what()).find("from which this one was forked") != std::string_view::npos;
    }
  };
  Pool pool(odd_jobs(1), quietly());
  std::optional<Result> result = pool.submit("fill", "4096").get();
  std::optional<Job> ended = pool.submit("echo", "x");
  REQUIRE(ended->wait_for(20s));
  std::optional<Job> running = pool.submit("sleep", "2000");
  std::optional<Pool::Mapping> mapping = pool.map("echo", [n = 0]() mutable -> std::optional<Argument> {
    if (n++ == 3) return std::nullopt;
    return Argument("y");
  });
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // a call that does not return is killed
    bool good = refuses([&] { ended->get(); }) && refuses([&] { static_cast<void>(running->done()); }) &&
                refuses([&] { static_cast<void>(result->bytes()); }) && refuses([&] { mapping->next(); });
    good = good && !running->cancel() && !running->cancel_if_waiting();
    mapping.reset();
    running.reset();
    ended.reset();
    result.reset();
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(running->get().text() == "awake");
  CHECK(ended->get().text() == "x");
  CHECK(result->bytes().size() == 4096);
  for (int i = 0; i < 3; ++i) CHECK(mapping->next()->job.get().text() == "y");
}

TEST_CASE("a function's changes to its process are undone for the next function") {
  Pool pool(odd_jobs(1), quietly());
  const std::string before(pool.submit("deps", {}).get().text());
  CHECK(pool.submit("change_everything", {}).get().bytes().empty());
  CHECK(std::string(pool.submit("deps", {}).get().text()) == before);
  CHECK(pool.status().workers.at(0).incarnation == 1);
}

TEST_CASE("a function that prints more than is kept does not block the pool") {
  Pool pool(odd_jobs(2), quietly());
  const bystanders others(pool);
  CHECK(pool.submit("print", "20000").get().text() == "printed");
}

TEST_CASE("writing past a result is an error of that job only, with both numbers") {
  Pool pool(odd_jobs(1), quietly());
  const bystanders others(pool);
  Job job = pool.submit("overrun", {});
  CHECK(status_of(job) == job_status::too_large);
  CHECK(job.why()->text.find("100 bytes") != std::string::npos);
  Job longer = pool.submit("longer_than_room", {});
  CHECK(status_of(longer) == job_status::exception);
  CHECK(longer.why()->text.find("11") != std::string::npos);
}

TEST_CASE("a worker that overwrites its slot's table harms no other worker") {
  Pool pool(odd_jobs(2), quietly());
  const bystanders others(pool);
  Job job = pool.submit("scribble", std::string(100, 'a'));
  REQUIRE(job.wait_for(30s));
}

TEST_CASE("a worker program that loads a dataset is refused, and the error says what a pool needs") {
  config c = odd_jobs(1);
  c.loader.command = {"penstock-worker"};
  Pool pool(c, quietly());
  Job job = pool.submit("double", "1");
  CHECK(status_of(job) == job_status::cancelled);
  CHECK(job.why()->text.find("penstock::job_main") != std::string::npos);
  CHECK(code_of([&] { pool.submit("double", "1"); }) == errc::worker_program);
}

TEST_CASE("a worker program that cannot be executed fails the pool with its name") {
  config c = odd_jobs(1);
  c.loader.command = {"/no/such/program"};
  Pool pool(c, quietly());
  try {
    Job job = pool.submit("double", "1");
    CHECK(status_of(job) == job_status::cancelled);
    CHECK(job.why()->text.find("/no/such/program") != std::string::npos);
  } catch (const error& refused) {  // the pool has failed already
    CHECK(refused.code() == errc::worker_program);
    CHECK(std::string(refused.what()).find("/no/such/program") != std::string::npos);
  }
}
