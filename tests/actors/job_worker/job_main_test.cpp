// A worker process of a pool with a fake session: its messages, its exit, and the table that remains after a
// job has killed the worker.
#include "runtime/base/exit_codes.hpp"
#include "runtime/process/crash_notes.hpp"
#include "tests/actors/job_worker/fake_pool.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;
using arena::row_state;

namespace {

const std::vector<std::string> odd{PENSTOCK_ODD_JOB_WORKER};

/// A named pipe: a job waits for its byte.
class gate {
 public:
  gate() : path_(std::filesystem::temp_directory_path() / ("penstock-gate-" + std::to_string(::getpid()))) {
    REQUIRE(::mkfifo(path_.c_str(), 0600) == 0);
  }
  ~gate() { std::filesystem::remove(path_); }
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;

  [[nodiscard]] std::string path() const { return path_; }
  /// Blocks until the job has opened the pipe.
  void open() {
    const unique_fd end(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    REQUIRE(::write(end.get(), "x", 1) == 1);
  }

 private:
  std::filesystem::path path_;
};

/// The worker's reason for giving up. Checks that its message and its process have the same exit code.
std::string reason_given(fake_pool& pool, int exit_code) {
  const auto last = pool.hear_a<protocol::worker_gives_up>();
  CHECK(last.exit_code == exit_code);
  CHECK(pool.end_of_process().exited_with(exit_code));
  return last.reason;
}

struct by_hand {
  int exit_code = -1;
  std::string out;
};
by_hand run_by_hand(const std::string& arguments) {
  by_hand done;
  FILE* const pipe = ::popen((std::string(PENSTOCK_ODD_JOB_WORKER) + " " + arguments).c_str(), "r");
  std::array<char, 4096> piece;
  for (std::size_t bytes = 0; (bytes = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;)
    done.out.append(piece.data(), bytes);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) done.exit_code = WEXITSTATUS(status);
  return done;
}

}  // namespace

TEST_CASE("a pool's worker lists its functions, runs them, and exits when asked to") {
  fake_pool pool(odd);
  pool.introduce();
  CHECK(std::ranges::is_sorted(pool.functions));
  CHECK(std::ranges::find(pool.functions, "echo") != pool.functions.end());
  CHECK(pool.flights.read(0).heartbeats > 0);
  const auto rows = pool.run({{"echo", "hello"}, {"attempt"}, {"environment"}, {"thread"}});
  CHECK(rows[0].result == "hello");
  CHECK(rows[1].result == "1");
  CHECK(rows[2].result == "''");  // the GPU is hidden
  CHECK(rows[3].result == "from a thread");
  CHECK(pool.flights.read(0).samples_done == 4);
  pool.say(protocol::stop_work{});
  CHECK(pool.end_of_process().exited_with(exit_codes::finished));
}

TEST_CASE("arguments and results that do not fit a slot are sent in memory files") {
  fake_pool pool(odd, 64 * 1024);
  pool.introduce();
  const std::string large(3'000'000, 'l');
  const auto rows = pool.run({{"echo", large, true}, {"echo", "small"}, {"size", "100000000"}});
  CHECK(rows[0].elsewhere);
  CHECK(rows[0].result == large);
  CHECK(rows[1].result == "small");
  CHECK(rows[2].state == row_state::too_large);
}

TEST_CASE("leases run in the order of arrival") {
  fake_pool pool(odd);
  pool.introduce();
  const auto first = pool.lease({{"echo", "a"}, {"echo", "b"}}, 1);
  const auto second = pool.lease({{"echo", "c"}}, 0);
  pool.say(first);
  pool.say(second);
  protocol::jobs_done told;
  while (told.slot != second.slot || told.rows < second.rows) told = pool.hear_a<protocol::jobs_done>();
  CHECK(pool.read(first, 1).result == "b");
  CHECK(pool.read(second, 0).result == "c");
  CHECK(pool.table(0).read(0)->begun > pool.table(1).read(1)->begun);
}

TEST_CASE("a stop request overtakes waiting rows and leases") {
  for (const bool with_a_row_behind : {true, false}) {
    fake_pool pool(odd);
    gate door;
    pool.introduce();
    std::vector<job> jobs{{"wait for a byte", door.path()}};
    if (with_a_row_behind) jobs.push_back({"echo", "not begun"});
    const auto first = pool.lease(jobs, 0);
    const auto second = pool.lease({{"echo", "not begun"}}, 1);
    pool.say(first);
    pool.say(second);
    pool.wait_for(0, row_state::begun);
    pool.say(protocol::stop_work{});
    // The link is polled at most every 50 us, so the row must take longer than that. Otherwise the next one may start.
    const auto later = std::chrono::steady_clock::now() + 1ms;
    while (std::chrono::steady_clock::now() < later) {
    }
    door.open();
    CHECK(pool.end_of_process().exited_with(exit_codes::finished));
    CHECK(pool.read(first, 0).result == "got it");
    if (with_a_row_behind) CHECK(pool.read(first, 1).state == row_state::waiting);
    CHECK(pool.read(second, 0).state == row_state::waiting);
    const auto told = pool.hear_a<protocol::jobs_done>();
    CHECK(told.slot == 0);
    CHECK(told.rows == 1);
  }
}

TEST_CASE("the flight recorder names the running job and its limit") {
  fake_pool pool(odd);
  gate door;
  pool.introduce();
  const auto order = pool.lease({{"wait for a byte", door.path(), false, 9s}});
  pool.say(order);
  pool.wait_for(0, row_state::begun);
  const auto now = pool.flights.read(0);
  CHECK(now.sample_name == "wait for a byte (job 1)");
  CHECK(now.limit == 9s);
  CHECK(now.thread > 0);
  door.open();
  CHECK(pool.hear_a<protocol::jobs_done>().rows == 1);
}

TEST_CASE("when a job ends its worker's process, earlier jobs have finished and later ones have not started") {
  struct fatal {
    const char* function;
    process::exit_report::how how;
    int code;
  };
  constexpr auto exited = process::exit_report::how::exited;
  constexpr auto signalled = process::exit_report::how::signalled;
  for (const fatal& f :
       {fatal{"exit", exited, 0}, fatal{"abort", signalled, SIGABRT}, fatal{"segv", signalled, SIGSEGV},
        fatal{"noexcept", signalled, SIGABRT}, fatal{"past the slot", signalled, SIGSEGV}}) {
    INFO(f.function);
    fake_pool pool(odd);
    pool.introduce();
    const auto order = pool.lease({{"echo", "before"}, {f.function}, {"echo", "behind"}});
    pool.say(order);
    const auto end = pool.end_of_process();
    CHECK(end.ending == f.how);
    CHECK(end.code == f.code);
    const auto rows = pool.read_all(order);
    CHECK(rows[0].result == "before");
    CHECK(rows[1].state == row_state::begun);
    CHECK(rows[2].state == row_state::waiting);
    CHECK(pool.flights.read(0).sample_name == std::string(f.function) + " (job 2)");
    if (f.how == signalled) CHECK_FALSE(process::stack_in(pool.output()).empty());
  }
}

TEST_CASE("odd exceptions, closed descriptors, forks and floods of output do not end a worker") {
  fake_pool pool(odd);
  pool.introduce();
  const auto rows = pool.run({{"number"}, {"close the link"}, {"fork"}, {"print"}, {"echo", "still here"}});
  CHECK(rows[0].error.type == "int");
  CHECK(rows[1].result == "3");  // that descriptor number was free
  CHECK(rows[2].result == "parent");
  CHECK(rows[3].state == row_state::finished);
  CHECK(rows[4].result == "still here");
  CHECK(pool.run_one({"echo", "and again"}).result == "and again");
  pool.say(protocol::stop_work{});
  CHECK(pool.end_of_process().exited_with(exit_codes::finished));
  CHECK(pool.output().find("an unfinished line") != std::string::npos);
}

TEST_CASE("a worker whose link was closed by a job exits, and the job's result is kept") {
  fake_pool pool(odd);
  pool.introduce();
  const auto order = pool.lease({{"echo", "before"}, {"close everything"}, {"echo", "behind"}});
  pool.say(order);
  CHECK(pool.end_of_process().exited_with(exit_codes::parent_lost));
  const auto rows = pool.read_all(order);
  CHECK(rows[0].result == "before");
  CHECK(rows[1].result == "closed");
  CHECK(rows[2].state == row_state::waiting);
}

TEST_CASE("a job worker without its session ends") {
  fake_pool pool(odd);
  pool.introduce();
  pool.hang_up();
  CHECK(pool.end_of_process().exited_with(exit_codes::parent_lost));
}

TEST_CASE("a nonsensical message is answered with a reason and exit code 82") {
  {
    fake_pool pool(odd);
    pool.hear_a<protocol::hello>();
    pool.say(protocol::run_jobs{});
    CHECK(reason_given(pool, exit_codes::protocol) == "it received a lease before the slots");
  }
  {
    fake_pool pool(odd);
    pool.hear_a<protocol::hello>();
    pool.say(protocol::open_dataset{protocol::version + 1, {0, 1}, {}});
    CHECK(reason_given(pool, exit_codes::protocol).find("the session speaks protocol ") == 0);
  }
  {
    fake_pool pool(odd);
    pool.introduce();
    pool.say(protocol::load_batch{});
    CHECK(reason_given(pool, exit_codes::protocol) == "the session asked a pool's worker for a batch");
  }
  {
    fake_pool pool(odd);
    pool.introduce();
    pool.say(protocol::run_jobs{7, 1, 1});
    CHECK(reason_given(pool, exit_codes::protocol) ==
          "it received a lease of slot 7, but there are only 2 slots");
  }
  {
    fake_pool pool(odd);
    gate door;
    pool.introduce();
    pool.say(pool.lease({{"wait for a byte", door.path()}}, 0));
    pool.wait_for(0, row_state::begun);
    const auto more = pool.lease({{"echo"}}, 1);
    for (std::uint32_t i = 0; i <= fake_pool::slots; ++i) pool.say(more);
    door.open();
    CHECK(pool.hear_a<protocol::jobs_done>().rows == 1);
    CHECK(reason_given(pool, exit_codes::protocol) == "it received more leases than there are slots");
  }
  {
    fake_pool pool(odd);
    pool.introduce();
    pool.say_bytes("GET / HTTP/1.1\r\n\r\n");
    CHECK(reason_given(pool, exit_codes::protocol).find("announces") != std::string::npos);
  }
}

TEST_CASE("a lease with another lease's table ends the process, and a new process can run it") {
  fake_pool pool(odd);
  pool.introduce();
  auto order = pool.lease({{"echo", "x"}});
  ++order.generation;
  pool.say(order);
  CHECK(pool.end_of_process().exited_with(exit_codes::failed));
  CHECK(pool.output().find("the table of slot 0 is damaged") != std::string::npos);
}

TEST_CASE("a program without functions, or with too long a name, reports that and is not retried") {
  {
    fake_pool pool({PENSTOCK_ODD_JOB_WORKER, "--no-functions"});
    pool.hear_a<protocol::hello>();
    CHECK(reason_given(pool, exit_codes::configuration).find("the worker program has no functions") == 0);
  }
  {
    fake_pool pool({PENSTOCK_ODD_JOB_WORKER, "--long-name"});
    pool.hear_a<protocol::hello>();
    CHECK(reason_given(pool, exit_codes::configuration)
              .find("the name of a function has 201 bytes, but at most 200") == 0);
  }
}

// ---- by hand ----------------------------------------------------------------------------------------------

TEST_CASE("a function run by hand reads stdin and writes its result, and nothing else, to stdout") {
  const auto echo = run_by_hand("--run echo < /proc/version 2>/dev/null");
  CHECK(echo.exit_code == 0);
  CHECK(echo.out.starts_with("Linux version"));
  const auto print = run_by_hand("--run print 2>/dev/null < /dev/null");
  CHECK(print.exit_code == 0);
  CHECK(print.out.empty());
}

TEST_CASE("a worker program run by hand prints the type of an exception, and suggests a similar function name") {
  const auto number = run_by_hand("--run number 2>&1 < /dev/null");
  CHECK(number.exit_code == exit_codes::failed);
  CHECK(number.out.find("number threw int: an exception that is not a std::exception") != std::string::npos);
  const auto wrong = run_by_hand("--run ecko 2>&1 < /dev/null");
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.out.find("there is no function 'ecko' (did you mean 'echo'?); --list shows the functions") !=
        std::string::npos);
}

TEST_CASE("a worker program run by hand lists its functions, and explains itself when run without options") {
  CHECK(run_by_hand("--list").out.starts_with("abort\nattempt\n"));
  const auto nothing = run_by_hand("2>&1");
  CHECK(nothing.exit_code == exit_codes::configuration);
  CHECK(nothing.out.find("This is a job worker of penstock.") == 0);
  CHECK(run_by_hand("--help").exit_code == 0);
}
