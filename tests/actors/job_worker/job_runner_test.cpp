// Outcomes of jobs in a worker, without a process or a session.
#include "tests/actors/job_worker/one_worker.hpp"

#include <penstock/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <thread>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;
using arena::row_state;
using outcome = job_worker::job_runner::outcome;

namespace {

void echo(JobCall& call) {
  call.give(call.argument());
}

/// Busy-waits until the clock has advanced by `time`.
void work_for(nanoseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) {
  }
}

/// The signal that kills a process that runs `work`, 0 if none does.
template <class Work>
int signal_of(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int number : {SIGSEGV, SIGABRT, SIGBUS})
      ::signal(number, SIG_DFL);  // not the test framework's
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

// ---- results ----------------------------------------------------------------------------------------------

TEST_CASE("jobs run in order, and each result lies in its row where the session reads it") {
  std::vector<std::uint64_t> order;
  one_worker w({{"echo", echo}, {"number", [&](JobCall& call) {
                                   order.push_back(call.job());
                                   call.give(std::to_string(call.job()) + "/" +
                                             std::to_string(call.attempt()) + "/" +
                                             std::to_string(call.worker()));
                                 }}});
  const auto rows =
      w.run({{"echo", "hello"}, {"number"}, {"echo", ""}, {"number"}, {"echo", std::string(5000, 'x')}});
  CHECK(w.ended == outcome::done);
  CHECK(std::ranges::all_of(
      rows, [](const read_row& r) { return r.state == row_state::finished && !r.elsewhere; }));
  CHECK(rows[0].result == "hello");
  CHECK(rows[1].result == "2/1/3");
  CHECK(rows[2].result.empty());
  CHECK(rows[3].result == "4/1/3");
  CHECK(rows[4].result == std::string(5000, 'x'));
  CHECK(order == std::vector<std::uint64_t>{2, 4});
  for (std::uint32_t row = 0; row < rows.size(); ++row) CHECK(w.table().read(row)->result_offset % 64 == 0);
}

TEST_CASE("a function that writes its result in place makes no copy, and may give back room") {
  one_worker w({{"half",
                 [](JobCall& call) {
                   const auto first = call.result(10);
                   std::ranges::fill(first, std::byte{'!'});
                   const auto room = call.result(1000);  // replaces it
                   CHECK(room.size() == 1000);
                   CHECK(reinterpret_cast<std::uintptr_t>(room.data()) % 64 == 0);
                   std::ranges::fill(room, std::byte{'r'});
                   call.shorten_result(500);
                 }},
                {"longer",
                 [](JobCall& call) {
                   static_cast<void>(call.result(10));
                   call.shorten_result(11);
                 }},
                {"none", [](JobCall& call) {
                   static_cast<void>(call.result(10));
                   call.shorten_result(0);
                 }}});
  const auto rows = w.run({{"half"}, {"longer"}, {"none"}, {"half"}});
  CHECK(rows[0].result == std::string(500, 'r'));
  CHECK(rows[1].state == row_state::failed);
  CHECK(rows[1].error.text == "shorten_result(11): result() has made room for 10 bytes");
  CHECK(rows[2].state == row_state::finished);
  CHECK(rows[2].result.empty());
  CHECK(rows[3].result == std::string(500, 'r'));
  // The space that was given back is used for the next result.
  CHECK(w.table().read(1)->result_offset < w.table().read(0)->result_offset + 1000);
}

TEST_CASE("a hundred jobs in one lease all have their own results, and are reported in one message") {
  one_worker w({{"echo", echo}});
  std::vector<job> jobs;
  for (int i = 0; i < 100; ++i) jobs.push_back({"echo", "argument " + std::to_string(i)});
  const auto rows = w.run(jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i) REQUIRE(rows[i].result == jobs[i].argument);
  REQUIRE_FALSE(w.reports.empty());
  CHECK(w.reports.back().rows == 100);
  CHECK(w.reports.size() < 20);
  CHECK(w.flights.read(0).samples_done == 100);
  CHECK(w.flights.read(0).state.at == arena::phase::idle);
}

TEST_CASE("results that take long are not kept back for those behind them") {
  one_worker w({{"slow", [](JobCall&) { work_for(1100us); }}, {"echo", echo}});
  w.run({{"slow"}, {"echo", "a"}, {"slow"}, {"echo", "b"}});
  REQUIRE(w.reports.size() == 3);
  CHECK(w.reports[0].rows == 1);
  CHECK(w.reports[1].rows == 3);
  CHECK(w.reports[2].rows == 4);
}

TEST_CASE("the time that a job took is its own") {
  one_worker w({{"slow", [](JobCall&) { work_for(2ms); }}, {"echo", echo}});
  const auto rows = w.run({{"slow"}, {"echo"}});
  CHECK(rows[0].busy >= 2ms);
  CHECK(rows[1].busy < rows[0].busy);
  CHECK(w.table().read(1)->begun >= w.table().read(0)->begun + 2ms);
}

// ---- rows that do not run ---------------------------------------------------------------------------------

TEST_CASE("a revoked job is left out, and counts as over") {
  int ran = 0;
  one_worker w({{"count", [&](JobCall&) { ++ran; }}});
  const auto order = w.lease({{"count"}, {"count"}, {"count"}});
  REQUIRE(w.table().revoke(1));
  const auto rows = w.run(order);
  CHECK(ran == 2);
  CHECK(rows[1].state == row_state::revoked);
  CHECK(w.reports.back().rows == 3);
}

TEST_CASE("who is told to stop finishes the job at hand and begins no other") {
  one_worker* told = nullptr;
  one_worker w({{"stop", [&](JobCall& call) {
                   told->stop = true;
                   work_for(60us);
                   call.give("done");
                 }}});
  told = &w;
  const auto rows = w.run({{"stop"}, {"stop"}});
  CHECK(w.ended == outcome::stopped);
  CHECK(rows[0].result == "done");
  CHECK(rows[1].state == row_state::waiting);
  CHECK(w.reports.back().rows == 1);
}

TEST_CASE("a function that there is not is its job's error") {
  one_worker w({{"echo", echo}});
  const auto rows = w.run({{"missing"}, {"echo", "still"}});
  CHECK(rows[0].state == row_state::failed);
  CHECK(rows[0].error.text == "there is no function 1; this worker program has 1");
  CHECK(rows[1].result == "still");
}

TEST_CASE("a lease of no slot is a breach of protocol; a table that jobs have written over is not") {
  one_worker w({{"echo", echo}, {"scribble", [](JobCall& call) {
                                   // The table is before the arguments.
                                   auto* const argument = const_cast<std::byte*>(call.argument().data());
                                   std::memset(argument - 256, 0xff, 256);
                                 }}});
  CHECK(w.runner.run({2, 1, 1}).error().code == errc::protocol);
  auto order = w.lease({{"echo", "x"}});
  ++order.generation;
  CHECK(w.runner.run(order).error().code == errc::system);
  order = w.lease({{"echo", "x"}});
  ++order.rows;
  CHECK(w.runner.run(order).error().message.find("it has 1 rows instead of 2") != std::string::npos);
  order = w.lease({{"scribble", "x"}, {"echo", "y"}, {"echo", "z"}});
  const auto no = w.runner.run(order);
  REQUIRE_FALSE(no);
  CHECK(no.error().code == errc::system);
  CHECK(no.error().message.find("the table of slot 0 is damaged") != std::string::npos);
}

// ---- errors -----------------------------------------------------------------------------------------------

TEST_CASE("whatever a function throws is its job's error, with its type and text") {
  one_worker w({{"runtime", [](JobCall&) { throw std::runtime_error("no such picture"); }},
                {"nested",
                 [](JobCall&) {
                   try {
                     throw std::invalid_argument("width 0");
                   } catch (...) {
                     std::throw_with_nested(std::runtime_error("cannot scale"));
                   }
                 }},
                {"own", [](JobCall&) { throw job_exception("ValueError", "bad value", "line 1\nline 2"); }},
                {"number", [](JobCall&) { throw 42; }},
                {"literal", [](JobCall&) { throw "a literal"; }},
                {"string", [](JobCall&) { throw std::string("a string"); }},
                {"silent", [](JobCall&) { throw std::exception(); }},
                {"echo", echo}});
  const auto rows = w.run(
      {{"runtime"}, {"nested"}, {"own"}, {"number"}, {"literal"}, {"string"}, {"silent"}, {"echo", "after"}});
  CHECK(w.ended == outcome::done);
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) CHECK(rows[i].state == row_state::failed);
  CHECK(rows[0].error == arena::job_exception_text{"std::runtime_error", "no such picture", ""});
  CHECK(rows[1].error.text == "cannot scale: width 0");
  CHECK(rows[2].error == arena::job_exception_text{"ValueError", "bad value", "line 1\nline 2"});
  CHECK(rows[3].error == arena::job_exception_text{"int", "an exception that is not a std::exception", ""});
  CHECK(rows[4].error == arena::job_exception_text{"char const*", "a literal", ""});
  CHECK(rows[5].error.text == "a string");
  CHECK(rows[6].error == arena::job_exception_text{"std::exception", "std::exception", ""});
  CHECK(rows[7].result == "after");
}

TEST_CASE("what a function had given before it threw is not its result") {
  one_worker w({{"both", [](JobCall& call) {
                   call.give("half a result");
                   throw std::runtime_error("and then not");
                 }}});
  const auto row = w.run_one("both");
  CHECK(row.state == row_state::failed);
  CHECK(row.error.text == "and then not");
}

TEST_CASE("an error is told when the slot is full of arguments, elsewhere or cut") {
  const auto raise = [](JobCall&) { throw std::runtime_error(std::string(3000, 'x')); };
  constexpr std::uint64_t slot_bytes = 8192;
  const std::string argument(slot_bytes - 4096, 'a');  // leaves less room than the error needs
  {
    one_worker w({{"raise", raise}}, slot_bytes);
    const auto rows = w.run({{"raise", argument}, {"raise", std::string(3000, 'b')}});
    CHECK(rows[0].elsewhere);
    CHECK(rows[0].error.text.size() == 3000);
    CHECK(rows[1].elsewhere);
  }
  {
    one_worker w({{"raise", raise}}, slot_bytes, 0);
    const auto rows = w.run({{"raise", argument}, {"raise", std::string(3000, 'b')}});
    CHECK_FALSE(rows[0].elsewhere);
    CHECK(rows[0].error.text.size() < 3000);
    CHECK(rows[0].error.type == "std::runtime_error");
    CHECK(rows[1].state == row_state::failed);
  }
}

// ---- results and arguments that do not fit ----------------------------------------------------------------

TEST_CASE("a result that does not fit its slot travels in a memory file, and is told at once") {
  one_worker w({{"big",
                 [](JobCall& call) {
                   const auto room = call.result(100'000);
                   std::ranges::fill(room, std::byte{'b'});
                   call.shorten_result(70'000);
                 }},
                {"echo", echo}},
               16'384);
  const auto rows = w.run({{"echo", "before"}, {"big"}, {"echo", "after"}});
  CHECK(rows[0].result == "before");
  CHECK(rows[1].elsewhere);
  CHECK(rows[1].result == std::string(70'000, 'b'));
  CHECK(rows[2].result == "after");
  REQUIRE(w.reports.size() >= 2);
  CHECK(std::ranges::any_of(w.reports, [](const protocol::jobs_done& r) { return r.rows == 2; }));
}

TEST_CASE(
    "a result beyond all bounds is too large, and says so in numbers; one who asks for less afterwards gets "
    "it") {
  one_worker w({{"huge", [](JobCall& call) { static_cast<void>(call.result(200'000)); }},
                {"modest",
                 [](JobCall& call) {
                   try {
                     static_cast<void>(call.result(200'000));
                   } catch (const error& e) {
                     CHECK(e.code() == errc::out_of_memory);
                     call.give("less");
                   }
                 }},
                {"own",
                 [](JobCall&) {
                   throw error({errc::out_of_memory, "of my own", 0});
                 }},
                {"echo", echo}},
               16'384, 100'000);
  const auto rows = w.run({{"huge"}, {"modest"}, {"own"}, {"echo", "after"}});
  CHECK(rows[0].state == row_state::too_large);
  CHECK(rows[0].error.text.find("a result of 200000 bytes is too large: its slot has room for ") == 0);
  CHECK(rows[0].error.text.find("[jobs] memory allows 100000") != std::string::npos);
  CHECK(rows[1].state == row_state::finished);
  CHECK(rows[1].result == "less");
  CHECK(rows[2].state == row_state::failed);
  CHECK(rows[3].result == "after");
}

TEST_CASE("a result beyond the limit on file sizes is an error, not a signal") {
  one_worker w({{"big",
                 [](JobCall& call) {
                   rlimit bound{};
                   ::getrlimit(RLIMIT_FSIZE, &bound);
                   bound.rlim_cur = 4096;
                   ::setrlimit(RLIMIT_FSIZE, &bound);
                   static_cast<void>(call.result(100'000));
                 }}},
               16'384);
  const auto row = w.run_one("big");
  CHECK(row.state == row_state::failed);
  CHECK(row.error.text.find("the limit on file sizes") != std::string::npos);
}

TEST_CASE(
    "more results elsewhere than the socket holds: the rows before are told, so that somebody makes room") {
  constexpr std::uint32_t jobs = 600;
  one_worker w({{"big", [](JobCall& call) { static_cast<void>(call.result(20'000)); }}}, 65'536);
  // Like the session, which reads parcels when rows are reported.
  std::uint32_t taken = 0;
  auto context_reports = [&] {
    while (true) {
      const auto parcel = protocol::receive_parcel(w.parcels.get());
      REQUIRE(parcel);
      if (!parcel->has_value()) return;
      ++taken;
    }
  };
  job_worker::job_runner runner({w.functions,
                                 w.slots_seen,
                                 w.flight,
                                 w.settings,
                                 {0, 1},
                                 w.ends.second.get(),
                                 1 << 20,
                                 [&](const protocol::jobs_done& rows) {
                                   w.reports.push_back(rows);
                                   if (rows.rows % 50 == 0) context_reports();  // late, as a busy session is
                                 },
                                 [] { return false; }});
  std::vector<job> all(jobs, {"big"});
  const auto order = w.lease(all);
  const auto ended = runner.run(order);
  REQUIRE(ended);
  context_reports();
  std::uint32_t elsewhere = 0;
  for (std::uint32_t row = 0; row < jobs; ++row) {
    const auto read = w.table().read(row).value();
    REQUIRE(read.state == row_state::finished);
    if (read.result_elsewhere) ++elsewhere;
  }
  CHECK(elsewhere == taken);
  CHECK(elsewhere > jobs - 4);
}

TEST_CASE(
    "an argument that does not fit its slot is read where it came, and those of revoked jobs are passed "
    "over") {
  one_worker w({{"size",
                 [](JobCall& call) {
                   call.give(std::to_string(call.argument().size()) + std::string(call.text().substr(0, 1)));
                 }}},
               16'384);
  const auto order = w.lease({{"size", std::string(50'000, 'a'), true},
                              {"size", std::string(60'000, 'b'), true},
                              {"size", "small"},
                              {"size", std::string(70'000, 'c'), true}});
  REQUIRE(w.table().revoke(1));
  const auto rows = w.run(order);
  CHECK(rows[0].result == "50000a");
  CHECK(rows[1].state == row_state::revoked);
  CHECK(rows[2].result == "5s");
  CHECK(rows[3].result == "70000c");
}

TEST_CASE(
    "a job whose argument has not come yet waits for it, unless it is revoked or the worker is told to "
    "stop") {
  one_worker w({{"echo", echo}});
  // Empty arguments are not sent, so the rows wait.
  auto order = w.lease({{"echo", "", true}, {"echo", "next"}});
  std::thread session([&, slot = w.table()] {
    while (w.flights.read(0).heartbeats == 0) std::this_thread::yield();
    CHECK(slot.revoke(0));
  });
  w.flight.beat();
  auto rows = w.run(order);
  session.join();
  CHECK(rows[0].state == row_state::revoked);
  CHECK(rows[1].result == "next");
  order = w.lease({{"echo", "", true}, {"echo", "next"}});
  w.stop = true;
  rows = w.run(order);
  CHECK(w.ended == outcome::stopped);
  CHECK(rows[0].state == row_state::waiting);
}

TEST_CASE(
    "an argument that came before its turn is there when its row is, and what nobody wants is given back") {
  one_worker w({{"size", [](JobCall& call) { call.give(std::to_string(call.argument().size())); }}});
  // The argument of the first row is never sent; the following ones are, including that of the other slot's
  // lease.
  const auto first = w.lease(
      {{"size", "", true}, {"size", std::string(5000, 'b'), true}, {"size", std::string(6000, 'c'), true}},
      0);
  const auto second = w.lease({{"size", std::string(7000, 'd'), true}}, 1);
  REQUIRE(w.table(0).revoke(2));
  std::thread session([&, slot = w.table(0)] {
    while (w.flights.read(0).heartbeats == 0) std::this_thread::yield();
    CHECK(slot.revoke(0));
  });
  w.flight.beat();
  auto rows = w.run(first);
  session.join();
  CHECK(rows[0].state == row_state::revoked);
  CHECK(rows[1].result == "5000");
  CHECK(rows[2].state == row_state::revoked);
  CHECK(w.run(second).at(0).result == "7000");
  CHECK(protocol::receive_parcel(w.ends.second.get()).value() == std::nullopt);
}

// ---- misbehaving functions --------------------------------------------------------------------------------

TEST_CASE("a function that writes beyond its result fails, with both numbers, and harms nobody else's") {
  for (const std::uint64_t beyond : {std::uint64_t{1}, std::uint64_t{8}}) {
    one_worker w(
        {{"overrun", [&](JobCall& call) { std::memset(call.result(100).data(), 'x', 100 + beyond); }},
         {"echo", echo}});
    const auto rows = w.run({{"echo", "before"}, {"overrun"}, {"echo", "after"}});
    CHECK(rows[0].result == "before");
    CHECK(rows[1].state == row_state::failed);
    CHECK(rows[1].error.text ==
          "it made room for 100 bytes of result and wrote at least " + std::to_string(100 + beyond));
    CHECK(rows[2].result == "after");
  }
}

TEST_CASE("outside of the slot, too, a byte too many is an error and a page too many a SIGSEGV") {
  one_worker w({{"overrun", [](JobCall& call) { std::memset(call.result(100'000).data(), 'x', 100'001); }},
                {"far", [](JobCall& call) { std::memset(call.result(100'000).data(), 'x', 110'000); }}},
               16'384);
  const auto row = w.run_one("overrun");
  CHECK(row.state == row_state::failed);
  CHECK(row.error.text == "it made room for 100000 bytes of result and wrote at least 100001");
  CHECK(signal_of([&] { static_cast<void>(w.runner.run(w.lease({{"far"}}))); }) == SIGSEGV);
}

TEST_CASE("a function that forks and returns twice returns once for the session") {
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

TEST_CASE(
    "what a forked process writes to a result, in a slot or elsewhere, nobody sees; its argument it can "
    "read") {
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

TEST_CASE("a function that ends its thread ends the process, and not quietly") {
  one_worker w({{"end", [](JobCall&) { ::pthread_exit(nullptr); }}});
  CHECK(signal_of([&] { static_cast<void>(w.runner.run(w.lease({{"end"}}))); }) == SIGABRT);
}

TEST_CASE("nothing that a job changes about its process reaches the next one") {
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

TEST_CASE("a process that cannot be set back runs no more jobs") {
  one_worker w({{"close all",
                 [](JobCall& call) {
                   ::close_range(200, 400, 0);  // where the working directory is kept
                   call.give("done");
                 }},
                {"echo", echo}});
  const auto rows = w.run({{"echo", "before"}, {"close all"}, {"echo", "after"}});
  CHECK(w.ended == outcome::unfit);
  CHECK(w.runner.why() == "job 2 changed the working directory, which cannot be set back");
  CHECK(rows[1].result == "done");
  CHECK(rows[2].state == row_state::waiting);
  CHECK(w.reports.back().rows == 2);
}

TEST_CASE("a job that loads CUDA fails by the rule's name, and its process runs no more jobs") {
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

TEST_CASE(
    "a job may load a library that is linked to CUDA; one that initialises it fails by the rule's name") {
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

// ---- visible to others ------------------------------------------------------------------------------------

TEST_CASE("while a job runs, the recorder shows its function, its number, its row and its limit") {
  const one_worker* seen = nullptr;
  arena::flight_reading during;
  row_state row_during{};
  one_worker w({{"look",
                 [&](JobCall&) {
                   during = seen->flights.read(0);
                   row_during = seen->table(1).read(1)->state;
                 }},
                {"echo", echo}});
  seen = &w;
  w.run(w.lease({{"echo"}, {"look", "", false, 7s}}, 1));
  CHECK(during.state == arena::flight_state{arena::phase::loading, 1, 1, 1});
  CHECK(during.sample_name == "look (job 2)");
  CHECK(during.limit == 7s);
  CHECK(row_during == row_state::begun);
  CHECK(w.table(1).read(1)->begun == during.since);
}
