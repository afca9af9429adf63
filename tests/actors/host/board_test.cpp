// What the board shows after a run has ended.
#include "actors/host/board.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

constexpr steady_time start = steady_time{} + 1h;
const stall_report stall{stall_kind::sample, "waiting for worker/1, which has been loading sample 1237 for 106 s, in job 78", 106, 1};

}  // namespace

TEST_CASE("a stall that ended before the run is forgotten, and one cut short by the run's end is kept") {
  host::board board("loader", "embedded");
  board.stalled(stall);
  board.stalled(std::nullopt);
  board.stopping();
  board.stalled(std::nullopt);
  CHECK_FALSE(board.status_before_end().stalled);
  SECTION("a stop") {
    host::board stuck("loader", "embedded");
    stuck.stalled(stall);
    stuck.stopping();
    stuck.stalled(std::nullopt);
    CHECK_FALSE(stuck.status().stalled);
    CHECK(stuck.status_before_end().stalled->text == stall.text);
  }
  SECTION("a failure") {
    host::board stuck("loader", "embedded");
    stuck.stalled(stall);
    CHECK(stuck.ended_if_running(run_outcome::stopped, start, "an exception in the program: KeyError"));
    stuck.stalled(std::nullopt);
    CHECK(stuck.status_before_end().stalled);
  }
}

TEST_CASE("a paused session knows who paused it, even if someone else asks for the same") {
  host::board board("loader", "embedded");
  CHECK_FALSE(board.paused_by());
  CHECK_FALSE(board.paused(false, pauser::program, start));
  CHECK(board.paused(true, pauser::program, start));
  CHECK_FALSE(board.paused(true, pauser::operator_, start));
  CHECK(board.status().state == session_state::paused);
  CHECK(board.paused_by() == pauser::program);
  CHECK(board.paused(false, pauser::operator_, start));
  CHECK_FALSE(board.paused_by());
  CHECK(board.status().state == session_state::ok);
}

TEST_CASE("a program that failed is recorded as failed, with its reason, unless its run had already ended") {
  host::board board("loader", "embedded");
  CHECK(board.ended_if_running(run_outcome::stopped, start, "an exception in the program: KeyError"));
  CHECK(board.status().outcome == run_outcome::failed);
  CHECK(board.status().failure == "an exception in the program: KeyError");
  CHECK(board.report({}, start).error->code == errc::sink);
  host::board whole("loader", "embedded");
  CHECK(whole.ended_if_running(run_outcome::finished, start));
  CHECK_FALSE(whole.ended_if_running(run_outcome::stopped, start, "an exception in the program: KeyError"));
  CHECK(whole.status().outcome == run_outcome::finished);
}

TEST_CASE("a status has the number of the dataset's samples as soon as it is known") {
  host::board board("loader", "embedded");
  CHECK_FALSE(board.status().dataset_samples);
  board.dataset_has(640);
  CHECK(board.status().dataset_samples == 640);
}

TEST_CASE("a data loader that knows the length of its pass shows its progress and when the pass will end") {
  host::board board("loader", "embedded");
  board.begun(start);
  board.loader_pass(2, 10, 30);
  board.measured({2.0, {}});
  board.loader_batch_taken(2, 16, 0, start + 1s);
  session_status s = board.status();
  CHECK(std::tuple(s.epoch, s.batches_done, s.batches_expected, s.eta_seconds.value_or(0)) == std::tuple(2U, 11U, 30U, 9.5));
  board.loader_pass(2, 11, 100'000'000);
  CHECK_FALSE(board.status().eta_seconds);  // years
  board.loader_pass(3, 0, 0);
  s = board.status();
  CHECK(std::tuple(s.epoch, s.batches_expected) == std::tuple(3U, 0U));
  CHECK_FALSE(s.eta_seconds);
}

TEST_CASE("a session that is paused or has ended has no rates and no estimate of its end") {
  host::board board("stream", "embedded");
  board.planned(0, 100, 2);
  board.measured({10.0, {{0, 10.0}}});
  CHECK(board.status().eta_seconds == 10.0);
  CHECK(board.worker_rates().size() == 1);
  SECTION("paused") {
    board.paused(true, pauser::operator_, start);
  }
  SECTION("ended") {
    board.ended_if_running(run_outcome::finished, start);
  }
  CHECK_FALSE(board.status().rate);
  CHECK_FALSE(board.status().eta_seconds);
  CHECK(board.worker_rates().empty());
}

TEST_CASE("a batch that two deaths lost counts once, but its repetitions count twice") {
  host::board board("stream", "embedded");
  death_report d;
  d.cause = death_cause::signal;
  d.held = 5;
  board.worker_died(d, work_kind::samples);
  d.held_again = 2;
  board.worker_died(d, work_kind::samples);
  CHECK(board.status().deaths_cost.repeated == 8);
  CHECK(board.status().deaths_cost.repetitions == 10);
}

TEST_CASE("status shows what hung and what deaths cost, but no cost for a requested restart") {
  host::board board("stream", "embedded");
  death_report d;
  d.cause = death_cause::signal;
  d.held = 3;
  CHECK(board.worker_died(d, work_kind::samples).hung_before == 0);
  d.cause = death_cause::stopped;
  d.path = "tom.jpg";
  d.worked_seconds = 40;
  CHECK(board.worker_died(d, work_kind::samples).hung_before == 0);
  CHECK(board.worker_died(d, work_kind::samples).hung_before == 1);
  CHECK(board.status().deaths_cost.repeated == 3);
  CHECK(board.status().deaths_cost.repetitions == 3);
  CHECK_FALSE(board.status().deaths_cost.waited_seconds);
  REQUIRE(board.status().hung.size() == 1);
  CHECK(board.status().hung[0].hangs.size() == 2);
  CHECK(board.status().workers_ended_unexpectedly == 1);
  telemetry::limit_reading reading;
  reading.lost_seconds = 1.5;
  board.limited(reading);
  CHECK(board.status().deaths_cost.waited_seconds == 1.5);
}

TEST_CASE("the cost of deaths counts batches that a data loader loads again by itself, and the samples of those that it gives up") {
  host::board board("loader", "embedded");
  board.batch_repeated(false);
  board.batch_repeated(true);
  board.batch_lost(7);
  board.batch_lost(8);
  CHECK(board.status().deaths_cost.repeated == 1);
  CHECK(board.status().deaths_cost.repetitions == 2);
  CHECK(board.status().deaths_cost.lost == 15);
}

TEST_CASE(
    "samples that a data loader omits count as done but not delivered, and as quarantined only if this run did it") {
  host::board board("loader", "embedded");
  board.loader_batch_taken(0, 3, 1, start + 1s);
  board.loader_batch_taken(0, 0, 4, start + 2s);
  board.loader_quarantined({0, 0, 7, "", "", 3, {"SIGSEGV", "SIGSEGV", "SIGSEGV"}}, false);
  board.loader_quarantined({0, 0, 9, "", "", 1, {"exit 7"}}, true);
  board.counted(0, std::nullopt);
  const session_status s = board.status();
  CHECK(std::tuple(s.batches_delivered, s.samples_delivered, s.samples_done, s.quarantined) == std::tuple(1U, 3U, 8U, 1U));
  const run_report r = board.report({}, start + 3s);
  REQUIRE(r.quarantine.size() == 2);
  CHECK_FALSE(r.quarantine[0].known);
  CHECK(r.quarantine[1].known);
}

TEST_CASE("a data loader's batches are counted like a session's") {
  host::board board("loader", "embedded");
  board.begun(start);
  board.loader_batch_taken(3, 16, 0, start + 1s);
  board.loader_batch_taken(3, 12, 0, start + 2s);
  board.wait_begins(start + 2s);
  CHECK(board.waited_seconds(start + 4s) == 2.0);
  CHECK(board.report({}, start + 4s).device_waited_seconds == 2.0);
  board.wait_ends(start + 5s);
  CHECK(board.waited_seconds(start + 9s) == 3.0);
  const session_status s = board.status();
  CHECK(std::tuple(s.epoch, s.batches_delivered, s.samples_delivered) == std::tuple(3U, 2U, 28U));
  const run_report r = board.report({}, start + 5s);
  CHECK(std::tuple(r.batches, r.samples, r.first_batch_seconds, r.device_waited_seconds) == std::tuple(2U, 28U, 1.0, 3.0));
}
