// What remains on the board of a run that has ended.
#include "actors/host/board.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

constexpr steady_time start = steady_time{} + 1h;
const stall_report stall{"sample", "waiting for worker/1, which has been loading sample 1237 for 106 s, in job 78", 106, 1};

}  // namespace

TEST_CASE("a stall that was over before the end is forgotten, and one that the end cuts short is not") {
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

TEST_CASE("a program that failed has this outcome and its reason, unless its run had ended before") {
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

TEST_CASE("the batches of a data loader count as those of a session do") {
  host::board board("loader", "embedded");
  board.begun(start);
  board.loader_batch_taken(3, 16, start + 1s);
  board.loader_batch_taken(3, 12, start + 2s);
  board.wait_begins(start + 2s);
  board.wait_ends(start + 5s);
  const session_status s = board.status();
  CHECK(std::tuple(s.epoch, s.batches_delivered, s.samples_delivered) == std::tuple(3U, 2U, 28U));
  const run_report r = board.report({}, start + 5s);
  CHECK(std::tuple(r.batches, r.samples, r.first_batch_seconds, r.device_waited_seconds) == std::tuple(2U, 28U, 1.0, 3.0));
}
