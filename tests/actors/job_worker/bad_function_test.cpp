// Functions that write where they should not, fork, end their thread, change their process or load CUDA.
#include "tests/actors/job_worker/one_worker.hpp"

#include <catch2/catch_test_macros.hpp>
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

using namespace penstock;
using namespace penstock::testing;
using arena::row_state;
using outcome = job_worker::job_runner::outcome;

namespace {

/// The signal that kills a process that runs `work`; 0 if none does.
template <class Work>
int signal_of(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int number : {SIGSEGV, SIGABRT, SIGBUS})
      ::signal(number, SIG_DFL);  // removes the handler of the test framework
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("a function that writes beyond its result fails, with both numbers, and harms no other job") {
  for (const std::uint64_t beyond : {std::uint64_t{1}, std::uint64_t{8}}) {
    one_worker w(
        {{"overrun", [&](JobCall& call) { std::memset(call.result(100).data(), 'x', 100 + beyond); }},
         {"echo", echo}});
    const auto rows = w.run({{"echo", "before"}, {"overrun"}, {"echo", "after"}});
    CHECK(rows[0].result == "before");
    CHECK(rows[1].state == row_state::too_large);
    CHECK(rows[1].error.text ==
          "it reserved 100 bytes for its result, but wrote at least " + std::to_string(100 + beyond));
    CHECK(rows[2].result == "after");
  }
}

TEST_CASE("beyond the slot, one byte too many is an error and a page too many is a SIGSEGV") {
  one_worker w({{"overrun", [](JobCall& call) { std::memset(call.result(100'000).data(), 'x', 100'001); }},
                {"far", [](JobCall& call) { std::memset(call.result(100'000).data(), 'x', 110'000); }}},
               16'384);
  const auto row = w.run_one("overrun");
  CHECK(row.state == row_state::too_large);
  CHECK(row.error.text == "it reserved 100000 bytes for its result, but wrote at least 100001");
  CHECK(signal_of([&] { static_cast<void>(w.runner.run(w.lease({{"far"}}))); }) == SIGSEGV);
}

TEST_CASE("a function that forks and returns in both processes returns once to the session") {
  int status = -1;
  one_worker w({{"fork",
                 [](JobCall& call) {
                   const pid_t child = ::fork();
                   call.give(child == 0 ? "the child" : "the parent");
                 }},
                {"fork and throw",
                 [](JobCall&) {
                   static_cast<void>(::fork());
                   throw std::runtime_error("twice");
                 }},
                {"wait", [&](JobCall&) { REQUIRE(::wait(&status) > 0); }}});
  for (const char* const how : {"fork", "fork and throw"}) {
    const auto rows = w.run({{how}, {"wait"}});
    CHECK(w.ended == outcome::done);
    if (how == std::string("fork")) CHECK(rows[0].result == "the parent");
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 1);
  }
  CHECK(w.flights.read(0).samples_done == 4);
}

TEST_CASE("a forked process can read its argument, but its writes to a result have no effect") {
  std::vector<pid_t> left;
  for (const std::uint64_t bytes : {std::uint64_t{1000}, std::uint64_t{100'000}}) {
    one_worker w({{"fork",
                   [&](JobCall& call) {
                     const auto room = call.result(bytes);
                     std::ranges::fill(room, std::byte{'p'});
                     const pid_t child = ::fork();
                     if (child == 0) {
                       std::ranges::fill(room, std::byte{'c'});
                       ::_exit(call.text() == "argument" ? 0 : 1);
                     }
                     int status = 0;
                     REQUIRE(::waitpid(child, &status, 0) == child);
                     CHECK(status == 0);
                   }},
                  {"leave one behind",
                   [&](JobCall& call) {
                     std::ranges::fill(call.result(bytes), std::byte{'p'});
                     const pid_t child = ::fork();
                     if (child == 0) {
                       while (true) ::pause();
                     }
                     left.push_back(child);
                   }}},
                 16'384);
    const auto rows = w.run({{"fork", "argument"}, {"leave one behind"}});
    CHECK(rows[0].result == std::string(bytes, 'p'));
    CHECK(rows[1].result == std::string(bytes, 'p'));
    for (const pid_t child : left) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    left.clear();
  }
}

TEST_CASE("a function that ends its thread ends the process, with a message") {
  one_worker w({{"end", [](JobCall&) { ::pthread_exit(nullptr); }}});
  CHECK(signal_of([&] { static_cast<void>(w.runner.run(w.lease({{"end"}}))); }) == SIGABRT);
}

TEST_CASE("no change that a job makes to its process reaches the next job") {
  const std::string home = std::filesystem::current_path();
  ::setenv("PENSTOCK_TEST_KEPT", "kept", 1);
  ::unsetenv("PENSTOCK_TEST_NEW");
  one_worker w({{"change",
                 [](JobCall&) {
                   ::setenv("PENSTOCK_TEST_NEW", "new", 1);
                   ::setenv("PENSTOCK_TEST_KEPT", "changed", 1);
                   REQUIRE(::chdir("/") == 0);
                   sigset_t all;
                   ::sigfillset(&all);
                   ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
                   ::umask(0);
                   for (const auto which : {RLIMIT_NOFILE, RLIMIT_CORE, RLIMIT_FSIZE}) {
                     rlimit bound{};
                     ::getrlimit(which, &bound);
                     bound.rlim_cur = std::min<rlim_t>(bound.rlim_max, 512);
                     ::setrlimit(which, &bound);
                   }
                 }},
                {"clear", [](JobCall&) { ::clearenv(); }},
                {"in place", [](JobCall&) { std::strcpy(::getenv("PENSTOCK_TEST_KEPT"), "KEPT"); }},
                {"unset", [](JobCall&) { ::unsetenv("PENSTOCK_TEST_KEPT"); }},
                {"look", [&](JobCall& call) {
                   const char* const kept = ::getenv("PENSTOCK_TEST_KEPT");
                   const char* const added = ::getenv("PENSTOCK_TEST_NEW");
                   sigset_t mask;
                   ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
                   const mode_t files = ::umask(0);
                   ::umask(files);
                   std::string limits;
                   for (const auto which : {RLIMIT_NOFILE, RLIMIT_CORE, RLIMIT_FSIZE}) {
                     rlimit bound{};
                     ::getrlimit(which, &bound);
                     limits += " " + std::to_string(bound.rlim_cur);
                   }
                   call.give(
                       std::string(kept != nullptr ? kept : "-") + " " + (added != nullptr ? added : "-") +
                       " " + std::filesystem::current_path().string() + " " +
                       std::to_string(::sigismember(&mask, SIGUSR1)) + " " + std::to_string(files) + limits);
                 }}});
  const auto rows = w.run(
      {{"look"}, {"change"}, {"look"}, {"clear"}, {"look"}, {"in place"}, {"look"}, {"unset"}, {"look"}});
  CHECK(w.ended == outcome::done);
  CHECK(rows[0].result.starts_with("kept - " + home + " 0 "));
  for (const std::size_t row : {2U, 4U, 6U, 8U}) CHECK(rows[row].result == rows[0].result);
  for (const std::size_t row : {1U, 3U, 5U, 7U}) CHECK(rows[row].state == row_state::finished);
}

TEST_CASE("a process whose settings cannot be restored runs no more jobs") {
  one_worker w({{"close all",
                 [](JobCall& call) {
                   ::close_range(200, 400, 0);  // the working directory's descriptor is in this range
                   call.give("done");
                 }},
                {"echo", echo}});
  const auto rows = w.run({{"echo", "before"}, {"close all"}, {"echo", "after"}});
  CHECK(w.ended == outcome::unfit);
  CHECK(w.runner.why() == "job 2 changed the working directory, which cannot be restored");
  CHECK(rows[1].result == "done");
  CHECK(rows[2].state == row_state::waiting);
  CHECK(w.reports.back().rows == 2);
}

TEST_CASE("a job that loads CUDA fails and names the rule, and its process runs no more jobs") {
  void* library = nullptr;
  one_worker w({{"cuda",
                 [&](JobCall& call) {
                   library = ::dlopen(PENSTOCK_FAKE_CUDA, RTLD_NOW);
                   REQUIRE(library != nullptr);
                   call.give("computed");
                 }},
                {"echo", echo}});
  const auto rows = w.run({{"echo", "before"}, {"cuda"}, {"echo", "after"}});
  ::dlclose(library);
  CHECK(rows[0].result == "before");
  CHECK(rows[1].state == row_state::failed);
  CHECK(rows[1].error.text.find("only the GPU owner uses the GPU") != std::string::npos);
  CHECK(w.ended == outcome::unfit);
  CHECK(rows[2].state == row_state::waiting);
}

TEST_CASE("a job may load a library linked to CUDA; a job that initialises CUDA fails and names the rule") {
  void* library = nullptr;
  one_worker w({{"load",
                 [&](JobCall& call) {
                   library = ::dlopen(PENSTOCK_IDLE_CUDA, RTLD_NOW);
                   REQUIRE(library != nullptr);
                   call.give("loaded");
                 }},
                {"initialise",
                 [&](JobCall& call) {
                   reinterpret_cast<int (*)(unsigned)>(::dlsym(library, "cuInit"))(0);
                   call.give("initialised");
                 }},
                {"echo", echo}});
  const auto rows = w.run({{"load"}, {"echo", "between"}, {"initialise"}, {"echo", "after"}});
  ::dlclose(library);
  CHECK(rows[0].result == "loaded");
  CHECK(rows[1].result == "between");
  CHECK(rows[2].state == row_state::failed);
  CHECK(rows[2].error.text.find("only the GPU owner uses the GPU") != std::string::npos);
  CHECK(w.ended == outcome::unfit);
  CHECK(rows[3].state == row_state::waiting);
}
