// Commands as jobs: penstock-worker --commands, and which parts of a command's outcome reach the caller.
#include "actors/protocol/command_job.hpp"
#include "runtime/base/exit_report.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/process_facts.hpp"
#include "tests/actors/job_worker/fake_pool.hpp"

#include <catch2/catch_test_macros.hpp>
#include <stdlib.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

using namespace penstock;
using namespace penstock::testing;
using arena::row_state;

namespace {

std::string as_argument(const protocol::command_job& job) {
  const auto bytes = protocol::as_bytes(job);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::filesystem::path made_folder() {
  char name[] = "/tmp/penstock-commands-XXXXXX";
  REQUIRE(::mkdtemp(name) != nullptr);
  return name;
}

class commands : public fake_pool {
 public:
  commands() : fake_pool({PENSTOCK_WORKER, "--commands"}) {
    introduce();
    REQUIRE(functions == std::vector<std::string>{protocol::command_function});
  }
  ~commands() { std::filesystem::remove_all(folder_); }
  read_row row_of(std::vector<std::string> arguments) {
    return run_one({protocol::command_function, as_argument({std::move(arguments)})});
  }
  protocol::command_outcome outcome_of(std::vector<std::string> arguments) {
    return outcome_of(protocol::command_job{std::move(arguments)});
  }
  protocol::command_outcome outcome_of(const protocol::command_job& job) {
    const read_row row = run_one({protocol::command_function, as_argument(job)});
    INFO(row.error.text);
    REQUIRE(row.state == row_state::finished);
    auto done = protocol::command_outcome_from(std::as_bytes(std::span(row.result))).value();
    CHECK(std::exchange(done.took_ns, 0) > 0);
    return done;
  }
  [[nodiscard]] std::string folder() const { return folder_.string(); }
  /// The numbers in a file that a command writes; waits for the file.
  static std::vector<int> numbers_in(const std::string& file) {
    while (!std::filesystem::exists(file)) std::this_thread::yield();
    std::ifstream in(file);
    return {std::istream_iterator<int>(in), {}};
  }

 private:
  std::filesystem::path folder_ = made_folder();
};

bool is_alive(pid_t pid) {
  std::string state;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), state);
  const auto name_end = state.rfind(')');
  return name_end != std::string::npos &&
         std::string_view("ZX").find(state[name_end + 2]) == std::string_view::npos;
}

/// Whether the process ends, now or within a moment.
bool ends(pid_t pid) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (is_alive(pid) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return !is_alive(pid);
}

std::string name_of(pid_t pid) {
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
  return name;
}

}  // namespace

TEST_CASE("a command's exit code and its output come back, each descriptor separately") {
  commands pool;
  CHECK(pool.outcome_of({"true"}) == protocol::command_outcome{});
  CHECK(pool.outcome_of({"false"}).exit_code == 1);
  const auto both = pool.outcome_of({"sh", "-c", "echo out; echo err >&2; exit 7"});
  CHECK(both == protocol::command_outcome{7, {"out\n", 4}, {"err\n", 4}});
}

TEST_CASE("arguments arrive unchanged, because no shell sees them") {
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

TEST_CASE("of a flood of output, the beginning and the total size are kept") {
  commands pool;
  const auto flood = pool.outcome_of({"head", "-c", "5000000", "/dev/zero"});
  CHECK(flood.exit_code == 0);
  CHECK(flood.out.written == 5'000'000);
  CHECK(flood.out.kept.size() == 1 << 20);
}

TEST_CASE("a missing or non-executable program is an error that names it, and the next command runs") {
  commands pool;
  const auto missing = pool.row_of({"no-such-program-here", "x"});
  CHECK(missing.state == row_state::failed);
  CHECK(missing.error.type == "command");
  CHECK(missing.error.text == "there is no program 'no-such-program-here' in PATH");
  CHECK(pool.row_of({"/proc/version", "x"}).error.text == "executing '/proc/version x': Permission denied");
  CHECK(pool.row_of({"/no/such/program"}).error.text ==
        "executing '/no/such/program': No such file or directory");
  const auto garbage = pool.run_one({protocol::command_function, "rm -rf /"});
  CHECK(garbage.error.text == "received 8 bytes that are not a command line");
  CHECK(pool.outcome_of({"true"}).exit_code == 0);
}

TEST_CASE("processes left in the background do not delay a command, and end with its worker") {
  commands pool;
  const pid_t left = std::stoi(pool.outcome_of({"sh", "-c", "sleep 1000 >&2 & echo $!"}).out.kept);
  CHECK(pool.outcome_of({"true"}).exit_code == 0);
  CHECK(is_alive(left));
  pool.say(protocol::stop_work{});
  CHECK(pool.end_of_process().exited_with(0));
  CHECK(ends(left));
}

TEST_CASE("a command that signals its process group reaches itself and its children, but not its worker") {
  commands pool;
  // The signal must not arrive before the shell's child has become sleep.
  const auto done =
      pool.outcome_of({"sh", "-c",
                       "trap 'echo heard' USR1; sleep 1000 & until grep -q sleep /proc/$!/comm; do :; "
                       "done; kill -USR1 0; wait; echo $!"});
  CHECK(done.exit_code == 0);
  CHECK(done.out.kept.starts_with("heard\n"));
  const pid_t below = std::stoi(done.out.kept.substr(6));
  CHECK_FALSE(is_alive(below));  // sleep has no handler for the signal
  const auto order = pool.lease({{protocol::command_function, as_argument({{"sh", "-c", "kill -KILL 0"}})}});
  pool.say(order);
  CHECK(pool.end_of_process().ended_by(SIGKILL));
  CHECK(pool.output().find(" was killed by SIGKILL: sh -c 'kill -KILL 0'") != std::string::npos);
}

TEST_CASE("however a worker ends, its command and the command's process group end with it") {
  for (const int number : {SIGKILL, SIGTERM, SIGSEGV, SIGHUP}) {
    INFO(number);
    commands pool;
    const std::string left_at = pool.outcome_of({"sh", "-c", "sleep 1000 >&2 & echo $!"}).out.kept;
    const std::string file = pool.folder() + "/pids";
    const auto order = pool.lease(
        {{protocol::command_function, as_argument({{"sh", "-c",
                                                    "trap '' HUP TERM; sleep 1000 & echo $$ $! > " + file +
                                                        ".new; mv " + file + ".new " + file + "; wait"}})}});
    pool.say(order);
    const auto pids = pool.numbers_in(file);
    REQUIRE(pids.size() == 2);
    ::kill(pool.pid(), number);
    // A hang-up means that the session is gone, so the worker kills its own group.
    CHECK(pool.end_of_process().ended_by(number == SIGHUP ? SIGKILL : number));
    CHECK(ends(pids[0]));
    CHECK(ends(pids[1]));
    CHECK(ends(std::stoi(left_at)));
  }
}

TEST_CASE("a worker whose watching process was killed starts another one before it needs it") {
  commands pool;
  const auto watchers = [&pool] {
    std::vector<pid_t> found;
    for (const pid_t one : process::descendants_of(pool.pid())) {
      if (name_of(one) == "penstock-groups") found.push_back(one);
    }
    return found;
  };
  CHECK(pool.outcome_of({"true"}).exit_code == 0);
  std::vector<pid_t> before;
  while (before.empty()) before = watchers();  // the process gets its name shortly after its start
  REQUIRE(before.size() == 1);
  const std::string file = pool.folder() + "/pids";
  pool.say(pool.lease(
      {{protocol::command_function,
        as_argument({{"sh", "-c",
                      "echo $$ > " + file + ".new; mv " + file + ".new " + file + "; exec sleep 1000"}})}}));
  const auto pids = pool.numbers_in(file);
  REQUIRE(pids.size() == 1);
  ::kill(before[0], SIGKILL);
  // Wait until the new process has its name.
  while (watchers().empty() || watchers() == before) std::this_thread::yield();
  ::kill(pool.pid(), SIGKILL);
  CHECK(pool.end_of_process().ended_by(SIGKILL));
  CHECK(ends(pids[0]));
}

TEST_CASE("a script without #! is run by the shell, and a program for another machine is not") {
  commands pool;
  const std::string script = pool.folder() + "/script";
  std::ofstream(script) << "echo \"$0 [$1]\"\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  CHECK(pool.outcome_of({script, "a b"}).out.kept == script + " [a b]\n");
  std::ofstream(script) << std::string(
      "\x7f"
      "ELF\0\0\0",
      7);
  CHECK(pool.row_of({script}).error.text == "executing '" + script + "': Exec format error");
  std::ofstream(script, std::ios::trunc);
  CHECK(pool.outcome_of({script}).exit_code == 0);
}

TEST_CASE("a command's argv[0] is the program name as the caller wrote it") {
  commands pool;
  CHECK(pool.outcome_of({"sh", "-c", "tr '\\0' ' ' < /proc/self/cmdline; tr '\\0' ' ' < /proc/$$/cmdline"})
            .out.kept.ends_with("sh -c tr '\\0' ' ' < /proc/self/cmdline; tr '\\0' ' ' < /proc/$$/cmdline "));
}

TEST_CASE("a command's environment is the worker's, plus the job's changes") {
  commands pool;
  protocol::command_job job{{"sh", "-c", "echo $CUDA_VISIBLE_DEVICES $OWN; echo ${HOME-none}"}};
  job.environment = {"CUDA_VISIBLE_DEVICES=0,1", "HOME", "OWN=a=b"};
  CHECK(pool.outcome_of(job).out.kept == "0,1 a=b\nnone\n");
  CHECK(pool.outcome_of({"sh", "-c", "echo [$OWN]"}).out.kept == "[]\n");
}

TEST_CASE(
    "output files are complete and exact, replace those of an earlier attempt, and their beginning comes back") {
  commands pool;
  const std::string prefix = pool.folder() + "/7";
  const auto contents = [&](const std::string& end) {
    std::ifstream in(prefix + end, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  protocol::command_job job{{"sh", "-c", "printf 'a\\377\\000b'; echo err >&2"}};
  job.output_bytes_max = 2;
  job.output_files = prefix;
  for (int i = 0; i < 2; ++i) {
    const auto done = pool.outcome_of(job);
    CHECK(done.out.kept == "a\xff");
    CHECK(done.out.written == 4);
    CHECK(contents(".stdout") == std::string("a\xff\0b", 4));
    CHECK(contents(".stderr") == "err\n");
  }
  job.output_files = pool.folder() + "/nowhere/7";
  CHECK(pool.run_one({protocol::command_function, as_argument(job)})
            .error.text.starts_with("creating '" + job.output_files + ".stdout' for '"));
}

TEST_CASE("a command that exceeds its memory limit is killed with all processes that it has started") {
  commands pool;
  // The grandchild uses the memory.
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
  // The worker has adopted them. Zombies are ignored; killed processes may take a moment to end.
  int found = 0;
  for (int tries = 0; tries < 1000 && found == 0; ++tries)
    found = pool.outcome_of({"sh", "-c", "pgrep -r R,S,T,D -P $PPID sleep"}).exit_code;
  CHECK(found == 1);
  CHECK(pool.outcome_of({"true"}).exit_code == 0);
}

TEST_CASE("a command within its memory limit keeps running") {
  commands pool;
  protocol::command_job job{{"sleep", "0.2"}};
  job.memory_bytes_max = 64U << 20U;
  CHECK(pool.run_one({protocol::command_function, as_argument(job)}).state == row_state::finished);
}

TEST_CASE("a worker's current work is shown as its command line") {
  commands pool;
  const auto order = pool.lease({{protocol::command_function, as_argument({{"sleep", "1000"}})}});
  pool.say(order);
  pool.wait_for(0, row_state::begun);
  // The flight page must show the command line soon.
  while (pool.flights.read(0).sample_name != "sleep 1000 (job 1)") std::this_thread::yield();
}

TEST_CASE("a command ended by a signal counts as a death of its worker by that signal") {
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
    CHECK(pool.output().find("penstock: the command of job 2 was killed by " + process::signal_name(number) +
                             ": ") != std::string::npos);
    CHECK(process::stack_in(pool.output()).empty());
  }
}
