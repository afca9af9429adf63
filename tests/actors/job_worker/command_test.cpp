// Commands as jobs: penstock-worker --commands, and which parts of a command's outcome reach the caller.
#include "actors/protocol/command_job.hpp"
#include "runtime/base/exit_report.hpp"
#include "runtime/process/crash_notes.hpp"
#include "tests/actors/job_worker/fake_pool.hpp"

#include <catch2/catch_test_macros.hpp>

#include <csignal>

using namespace penstock;
using namespace penstock::testing;
using arena::row_state;

namespace {

std::string as_argument(const protocol::command_job& job) {
  const auto bytes = protocol::as_bytes(job);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class commands : public fake_pool {
 public:
  commands() : fake_pool({PENSTOCK_WORKER, "--commands"}) {
    introduce();
    REQUIRE(functions == std::vector<std::string>{protocol::command_function});
  }
  read_row row_of(std::vector<std::string> arguments) {
    return run_one({protocol::command_function, as_argument({std::move(arguments)})});
  }
  protocol::command_outcome outcome_of(std::vector<std::string> arguments) {
    const read_row row = row_of(std::move(arguments));
    INFO(row.error.text);
    REQUIRE(row.state == row_state::finished);
    auto done = protocol::command_outcome_from(std::as_bytes(std::span(row.result))).value();
    CHECK(std::exchange(done.took_ns, 0) > 0);
    return done;
  }
};

}  // namespace

TEST_CASE("a command's exit code and what it writes come back, each descriptor by itself") {
  commands pool;
  CHECK(pool.outcome_of({"true"}) == protocol::command_outcome{});
  CHECK(pool.outcome_of({"false"}).exit_code == 1);
  const auto both = pool.outcome_of({"sh", "-c", "echo out; echo err >&2; exit 7"});
  CHECK(both == protocol::command_outcome{7, {"out\n", 4}, {"err\n", 4}});
}

TEST_CASE("arguments arrive as they are: no shell sees them") {
  commands pool;
  CHECK(pool.outcome_of({"printf", "[%s]", "a b", "", "$HOME; rm *", "'\"\\"}).out.kept ==
        "[a b][][$HOME; rm *]['\"\\]");
}

TEST_CASE("a command reads nothing, inherits no descriptor, and finds no signal blocked") {
  commands pool;
  CHECK(pool.outcome_of({"cat"}) == protocol::command_outcome{});
  CHECK(pool.outcome_of({"sh", "-c", "echo /proc/self/fd/*"}).out.kept.find("/3 ") == std::string::npos);
  for (const std::string which : {"SigBlk", "SigIgn"}) {
    const auto set = pool.outcome_of({"sh", "-c", "grep " + which + " /proc/self/status"});
    // The two signals after the standard ones are reserved by the C library.
    CHECK((std::stoull(set.out.kept.substr(which.size() + 2), nullptr, 16) & 0x7fff'ffffU) == 0);
  }
}

TEST_CASE("of a flood of output the beginning is kept, and how much there was is said") {
  commands pool;
  const auto flood = pool.outcome_of({"head", "-c", "5000000", "/dev/zero"});
  CHECK(flood.exit_code == 0);
  CHECK(flood.out.written == 5'000'000);
  CHECK(flood.out.kept.size() == 1 << 20);
}

TEST_CASE("a program that is not there, or is none, is an error that names it; the next command runs") {
  commands pool;
  const auto missing = pool.row_of({"no-such-program-here", "x"});
  CHECK(missing.state == row_state::failed);
  CHECK(missing.error.type == "command");
  CHECK(missing.error.text == "there is no program 'no-such-program-here' in PATH");
  CHECK(pool.row_of({"/proc/version", "x"}).error.text == "executing '/proc/version x': Permission denied");
  CHECK(pool.row_of({"/no/such/program"}).error.text ==
        "executing '/no/such/program': No such file or directory");
  const auto garbage = pool.run_one({protocol::command_function, "rm -rf /"});
  CHECK(garbage.error.text == "8 bytes that are no command line came as one");
  CHECK(pool.outcome_of({"true"}).exit_code == 0);
}

TEST_CASE("what a command leaves running in the background keeps nobody waiting") {
  commands pool;
  const auto done = pool.outcome_of({"sh", "-c", "sleep 1000 & echo started"});
  CHECK(done.out.kept == "started\n");
  pool.say(protocol::stop_work{});
  CHECK(pool.end_of_process().exited_with(0));  // also waits until its group is gone
}

TEST_CASE("a command that comes to use more memory than it may is ended with all that it has started") {
  commands pool;
  // The grandchild uses it.
  const std::string script =
      "sleep 1000 & echo $! >&2; sh -c 'x=$(head -c 100000000 /dev/zero | tr \"\\0\" x); sleep 1000'; true";
  protocol::command_job job{{"sh", "-c", script}};
  job.memory_bytes_max = 64U << 20U;
  const read_row row = pool.run_one({protocol::command_function, as_argument(job)});
  CHECK(row.state == row_state::failed);
  CHECK(row.error.type == "memory");
  INFO(row.error.text);
  CHECK(row.error.text.starts_with("the command used "));
  CHECK(row.error.text.ends_with("; the limit is 64.0 MiB"));
  // Of the worker's process group; zombies aside. What was killed may be a moment away from its end.
  int found = 0;
  for (int tries = 0; tries < 1000 && found == 0; ++tries)
    found = pool.outcome_of({"pgrep", "-r", "R,S,T,D", "-g", "0", "sleep"}).exit_code;
  CHECK(found == 1);
  CHECK(pool.outcome_of({"true"}).exit_code == 0);
}

TEST_CASE("a command within its memory is left alone") {
  commands pool;
  protocol::command_job job{{"sleep", "0.2"}};
  job.memory_bytes_max = 64U << 20U;
  CHECK(pool.run_one({protocol::command_function, as_argument(job)}).state == row_state::finished);
}

TEST_CASE("what a worker is running is told as the command") {
  commands pool;
  const auto order = pool.lease({{protocol::command_function, as_argument({{"sleep", "1000"}})}});
  pool.say(order);
  pool.wait_for(0, row_state::begun);
  // Very soon.
  while (pool.flights.read(0).sample_name != "sleep 1000 (job 1)") std::this_thread::yield();
}

TEST_CASE("a command that a signal ended is a death of its worker by the same signal") {
  for (const int number : {SIGSEGV, SIGKILL, SIGTERM, SIGABRT, SIGHUP}) {
    INFO(number);
    commands pool;
    const auto order =
        pool.lease({{protocol::command_function, as_argument({{"true"}})},
                    {protocol::command_function,
                     as_argument({{"sh", "-c", "ulimit -c 0; kill -" + std::to_string(number) + " $$"}})}});
    pool.say(order);
    CHECK(pool.end_of_process().ended_by(number));
    CHECK(pool.read(order, 0).state == row_state::finished);
    CHECK(pool.read(order, 1).state == row_state::begun);
    CHECK(pool.output().find("penstock: the command of job 2 was ended by " + process::signal_name(number) +
                             ": ") != std::string::npos);
    CHECK(process::stack_in(pool.output()).empty());
  }
}
