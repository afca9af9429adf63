// The texts of a run's progress.
#include "tools/penstock/run/progress.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::cli;

TEST_CASE("a rate of one a second has a singular noun") {
  CHECK(rate_for_people(1, "sample") == "1 sample/s");
  CHECK(rate_for_people(0.6, "sample") == "1 sample/s");
  CHECK(rate_for_people(0, "sample") == "0 samples/s");
  CHECK(rate_for_people(249.6, "sample") == "250 samples/s");
}

TEST_CASE("the remaining time is shown while batches remain") {
  CHECK(time_left(10, 2) == "  5 s left");
  CHECK(time_left(0.1, 2) == "  less than 1 s left");
  CHECK(time_left(0, 2).empty());
  CHECK(time_left(10, 0).empty());
}

TEST_CASE(
    "a run is done when each expected sample was delivered or omitted, and its restarts are the report's") {
  penstock::session_status s;
  s.state = penstock::session_state::ok;
  s.samples_expected = 100;
  s.samples_delivered = 40;
  s.samples_done = 50;
  s.failed = 10;
  s.worker_restarts = 4;
  s.workers.resize(2);
  s.workers[1].restarts = 3;
  const std::string line = progress_line(s, s, 1, 200, false);
  CHECK(line.find(" 50 %") != std::string::npos);
  CHECK(line.find("4 restarts") != std::string::npos);
  CHECK(line.find("stalled") == std::string::npos);
  s.stalled = penstock::stall_report{penstock::stall_kind::worker, "waiting for worker/0", 8.2, 0};
  CHECK(progress_line(s, s, 1, 200, false).find("stalled for 8 s") != std::string::npos);
}

TEST_CASE("a resumed run shows the progress of the whole stream and the time that remains") {
  penstock::session_status s;
  s.state = penstock::session_state::ok;
  s.samples_before = 300;
  s.samples_expected = 100;
  s.samples_delivered = s.samples_done = 50;
  const std::string line = progress_line(s, {}, 5, 200, false);
  CHECK(line.find(" 87 %") != std::string::npos);
  CHECK(line.find("  5 s left") != std::string::npos);
}

TEST_CASE("on 80 columns a line omits details, but never a failure") {
  penstock::session_status s;
  s.state = penstock::session_state::degraded;
  s.samples_expected = 100'000;
  s.samples_delivered = s.samples_done = 50'000;
  const penstock::session_status before;
  CHECK(progress_line(s, before, 100, 200, true) ==
        "[==========>         ]  50 %  epoch 0  500 samples/s  0 B/s  1 m 40 s left  0 workers  degraded");
  CHECK(progress_line(s, before, 100, 79, true) ==
        "[====>   ]  50 %  epoch 0  500 samples/s  1 m 40 s left  0 workers  degraded");
  s.worker_restarts = 12;
  s.failed = 3;
  CHECK(progress_line(s, before, 100, 79, true) ==
        "[====>   ]  50 %  500 samples/s  1 m 40 s left  12 restarts  3 failed  degraded");
  s.quarantined = 1;
  CHECK(progress_line(s, before, 100, 79, true) ==
        " 50 %  500 samples/s  12 restarts  3 failed  1 quarantined  degraded");
  CHECK(progress_line(s, before, 100, 10, true).size() == 10);
}
