#include "tools/penstock/jobs/map_progress.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::cli;

namespace {

map_status after(std::uint64_t ok, std::uint64_t bytes) {
  map_status status;
  status.counts.jobs = ok;
  status.counts.by_status[0] = ok;
  status.counts.input_bytes = bytes;
  status.input_bytes = 1000;
  status.pool.state = session_state::ok;
  return status;
}

}  // namespace

TEST_CASE("progress is measured in bytes of the input, and speed in jobs of the last seconds") {
  CHECK(map_progress_line(after(50, 500), after(10, 100), 4, 200, true) ==
        "[==========>         ]  50 %  50 jobs  10 jobs/s  5 s left  0 workers");
  CHECK(map_progress_line(after(0, 0), after(0, 0), 0, 200, false) == "  0 %  0 jobs  0 jobs/s  0 workers");
}

TEST_CASE("without a known input size, no share and no remaining time are shown") {
  map_status now = after(1, 500);
  now.input_bytes.reset();
  CHECK(map_progress_line(now, after(0, 0), 1, 200, true) == "1 job  1 job/s  0 workers");
}

TEST_CASE("failed jobs, skipped lines, restarts and the pool's state are shown") {
  map_status now = after(5, 1000);
  now.counts.jobs = 7;
  now.counts.by_status[2] = 2;
  now.counts.skipped = 1;
  now.pool.state = session_state::degraded;
  worker_status ready;
  ready.state = child_state::ready;
  now.pool.worker_restarts = 3;
  now.pool.workers = {ready};
  CHECK(map_progress_line(now, after(5, 1000), 1, 200, false) ==
        "100 %  7 jobs  2 jobs/s  2 failed  1 skipped  1 worker  3 restarts  degraded");
}

TEST_CASE("a line is never wider than the terminal") {
  CHECK(map_progress_line(after(50, 500), after(10, 100), 4, 30, true).size() == 30);
}

TEST_CASE("the closing line has each status that occurred") {
  map_counts counts = after(5, 0).counts;
  CHECK(map_counts_line(counts) == "5 jobs: 5 ok");
  counts.jobs = 6;
  ++counts.by_status[static_cast<std::size_t>(job_status::poisoned)];
  counts.from_journal = 2;
  counts.skipped = 1;
  CHECK(map_counts_line(counts) == "6 jobs: 5 ok, 1 poisoned; 2 from the journal; 1 bad line skipped");
  CHECK(map_counts_line({}) == "0 jobs");
}

TEST_CASE("the closing line counts nonzero exit codes, and names the option that makes them failures") {
  map_counts counts = after(20, 0).counts;
  counts.nonzero_exits = 20;
  CHECK(map_counts_line(counts) ==
        "20 jobs: 20 ok, 20 of them exited with a code other than 0 (--fail-on-exit counts these as failed)");
}
