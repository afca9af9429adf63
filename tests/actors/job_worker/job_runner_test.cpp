// Outcomes of jobs in a worker, without a process or a session. Jobs that do not fit their slots:
// job_size_test.cpp; misbehaving functions: bad_function_test.cpp.
#include "tests/actors/job_worker/one_worker.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;
using arena::row_state;
using outcome = job_worker::job_runner::outcome;

namespace {

/// Busy-waits until the clock has advanced by `time`.
void work_for(nanoseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) {
  }
}

}  // namespace

// ---- results ----------------------------------------------------------------------------------------------

TEST_CASE("jobs run in order, and each result is in its row, where the session reads it") {
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

TEST_CASE("a function that writes its result in place makes no copy, and may return unused space") {
  one_worker w({{"half",
                 [](JobCall& call) {
                   const auto first = call.result(10);
                   std::ranges::fill(first, std::byte{'!'});
                   const auto room = call.result(1000);  // replaces the first result
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
  CHECK(rows[1].error.text == "shorten_result(11): result() reserved only 10 bytes");
  CHECK(rows[2].state == row_state::finished);
  CHECK(rows[2].result.empty());
  CHECK(rows[3].result == std::string(500, 'r'));
  // The next result uses the space that was given back.
  CHECK(w.table().read(1)->result_offset < w.table().read(0)->result_offset + 1000);
}

TEST_CASE(
    "result bytes that are passed on as a result arrive complete, from the slot and from a memory file") {
  const auto give_again = [](std::uint64_t bytes, std::uint64_t from) {
    return [=](JobCall& call) {
      const auto first = call.result(bytes);
      for (std::size_t i = 0; i < first.size(); ++i) first[i] = static_cast<std::byte>(i % 251);
      call.give(first.subspan(from));
    };
  };
  one_worker w({{"slot", give_again(3000, 1)}, {"file", give_again(5'000'000, 100)}});
  const auto rows = w.run({{"slot"}, {"file"}});
  const auto expected = [](std::uint64_t bytes, std::uint64_t from) {
    std::string text;
    for (std::uint64_t i = from; i < bytes; ++i) text.push_back(static_cast<char>(i % 251));
    return text;
  };
  CHECK(rows[0].result == expected(3000, 1));
  CHECK(rows[1].result == expected(5'000'000, 100));
}

TEST_CASE("a hundred jobs in one lease each have their own result, and are reported in one message") {
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

TEST_CASE("finished results are not delayed by slower jobs behind them") {
  one_worker w({{"slow", [](JobCall&) { work_for(1100us); }}, {"echo", echo}});
  w.run({{"slow"}, {"echo", "a"}, {"slow"}, {"echo", "b"}});
  REQUIRE(w.reports.size() == 3);
  CHECK(w.reports[0].rows == 1);
  CHECK(w.reports[1].rows == 3);
  CHECK(w.reports[2].rows == 4);
}

TEST_CASE("a job's reported time is its own") {
  one_worker w({{"slow", [](JobCall&) { work_for(2ms); }}, {"echo", echo}});
  const auto rows = w.run({{"slow"}, {"echo"}});
  CHECK(rows[0].busy >= 2ms);
  CHECK(rows[1].busy < rows[0].busy);
  CHECK(w.table().read(1)->begun >= w.table().read(0)->begun + 2ms);
}

// ---- rows that do not run ---------------------------------------------------------------------------------

TEST_CASE("a revoked job is skipped and counts as done") {
  int ran = 0;
  one_worker w({{"count", [&](JobCall&) { ++ran; }}});
  const auto order = w.lease({{"count"}, {"count"}, {"count"}});
  REQUIRE(w.table().revoke(1));
  const auto rows = w.run(order);
  CHECK(ran == 2);
  CHECK(rows[1].state == row_state::revoked);
  CHECK(w.reports.back().rows == 3);
}

TEST_CASE("a runner asked to stop finishes its current job and starts no other") {
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

TEST_CASE("a nonexistent function is an error of its job") {
  one_worker w({{"echo", echo}});
  const auto rows = w.run({{"missing"}, {"echo", "still"}});
  CHECK(rows[0].state == row_state::failed);
  CHECK(rows[0].error.text == "there is no function 1; this worker program has 1");
  CHECK(rows[1].result == "still");
}

TEST_CASE("a lease of a nonexistent slot is a protocol violation; a table overwritten by jobs is not") {
  one_worker w({{"echo", echo}, {"scribble", [](JobCall& call) {
                                   // The table precedes the arguments.
                                   auto* const argument = const_cast<std::byte*>(call.argument().data());
                                   std::memset(argument - 256, 0xff, 256);
                                 }}});
  CHECK(w.runner.run({2, 1, 1}).error().code == errc::protocol);
  auto order = w.lease({{"echo", "x"}});
  ++order.generation;
  CHECK(w.runner.run(order).error().code == errc::system);
  order = w.lease({{"echo", "x"}});
  ++order.rows;
  CHECK(w.runner.run(order).error().message.find("it has 1 rows, but should have 2") != std::string::npos);
  order = w.lease({{"scribble", "x"}, {"echo", "y"}, {"echo", "z"}});
  const auto no = w.runner.run(order);
  REQUIRE_FALSE(no);
  CHECK(no.error().code == errc::system);
  CHECK(no.error().message.find("the table of slot 0 is damaged") != std::string::npos);
}

// ---- errors -----------------------------------------------------------------------------------------------

TEST_CASE("any exception of a function is its job's error, with type and text") {
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

TEST_CASE("a result set before the function threw does not count") {
  one_worker w({{"both", [](JobCall& call) {
                   call.give("half a result");
                   throw std::runtime_error("and then not");
                 }}});
  const auto row = w.run_one("both");
  CHECK(row.state == row_state::failed);
  CHECK(row.error.text == "and then not");
}

TEST_CASE("an error is delivered even if the slot is full, in a memory file or shortened") {
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
