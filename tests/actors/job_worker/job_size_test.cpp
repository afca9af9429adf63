// Results and arguments that do not fit their slots, on the worker's side.
#include "tests/actors/job_worker/one_worker.hpp"

#include <penstock/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <sys/resource.h>

#include <algorithm>
#include <thread>

using namespace penstock;
using namespace penstock::testing;
using arena::row_state;
using outcome = job_worker::job_runner::outcome;

TEST_CASE("a result that does not fit its slot is sent in a memory file and reported at once") {
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
    "a result beyond every limit is too large, with numbers, and a smaller request afterwards succeeds") {
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

TEST_CASE("when files of results fill the socket, earlier rows are reported so that the session frees some") {
  constexpr std::uint32_t jobs = 600;
  one_worker w({{"big", [](JobCall& call) { static_cast<void>(call.result(20'000)); }}}, 65'536);
  // Read parcels when rows are reported, as a session does.
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
                                   if (rows.rows % 50 == 0) context_reports();  // reads late, as a busy session would
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
    "an argument that does not fit its slot is read in place, and the arguments of revoked jobs are skipped") {
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

TEST_CASE("a job waits for its argument unless it is revoked or the worker is asked to stop") {
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

TEST_CASE("an argument that arrives early is kept for its row, and unneeded ones are freed") {
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
