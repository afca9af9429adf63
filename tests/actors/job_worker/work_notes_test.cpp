#include "actors/job_worker/work_notes.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;
using job_worker::work_notes;

namespace {

constexpr steady_time start = steady_time{} + 1h;

/// The flight page of worker 0, and the worker's notes.
struct noted {
  arena::flight_recorders pages = arena::flight_recorders::create(1).value();
  arena::flight_writer writer = arena::flight_writer::map(pages.fd(), 0).value();
  work_notes notes{writer};
  steady_time now = start;

  /// Begins a job whose samples take these times.
  void load(std::uint64_t job, std::uint64_t first, std::initializer_list<nanoseconds> times) {
    arena::job_reading row;
    row.job = job;
    notes.begins({arena::phase::loading, 0, 0, 1}, row, "call", now);
    for (const nanoseconds took : times) {
      notes.sample(first, "sample " + std::to_string(first), now);
      ++first;
      now += took;
    }
  }
};

}  // namespace

TEST_CASE("the flight recorder has the job's work, its sample, and since when") {
  noted n;
  n.load(7, 36, {1ms, 1ms});
  const arena::flight_reading seen = n.pages.read(0);
  CHECK(seen.sample_name == "sample 37 (job 7)");
  CHECK(seen.since == start);
  CHECK(seen.named_since == start + 1ms);
  n.notes.describe("collate_fn", n.now);
  CHECK(n.pages.read(0).sample_name == "collate_fn (job 7)");
}

TEST_CASE("a job's slow samples are those that take much longer than the worker's samples usually do") {
  noted n;
  n.load(1, 0, {1ms, 1ms, 1ms, 1ms, 1ms});
  CHECK(n.notes.slow_samples(n.now).slowest.empty());
  n.load(2, 5, {1ms, 3ms, 500ms, 1ms});
  n.notes.describe("collate_fn", n.now);
  n.now += 10s;  // the time for collating belongs to no sample
  const JobCall::slow_load found = n.notes.slow_samples(n.now);
  CHECK(found.busy == 10505ms);
  REQUIRE(found.slowest.size() == 1);
  CHECK(found.slowest[0].index == 7);
  CHECK(found.slowest[0].name == "sample 7");
  CHECK(found.slow > 400ms);
  CHECK(found.slow < 500ms);
  n.load(3, 9, {1ms});
  CHECK(n.notes.slow_samples(n.now).slow == 0ns);
}

TEST_CASE("a worker's first sample, which also imports modules and opens files, is not slow") {
  noted n;
  n.load(1, 0, {2s, 1ms, 1ms});
  CHECK(n.notes.slow_samples(n.now).slow == 0ns);
}
