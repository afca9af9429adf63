// Samples and jobs that hung before.
#include "runtime/supervision/hang_history.hpp"

#include "runtime/base/death_words.hpp"
#include "runtime/base/same_work.hpp"
#include "runtime/supervision/awaited.hpp"
#include "tests/runtime/supervision/progress_facts.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::supervision;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::system_clock::time_point noon{12h};

/// A worker that an operator had killed while it worked on this sample.
death_report restarted_at(const std::string& sample, double seconds, std::uint32_t worker = 0) {
  death_report d;
  d.worker = worker;
  d.cause = death_cause::stopped;
  d.signal = "SIGKILL";
  d.path = sample;
  d.worked_seconds = seconds;
  d.time = noon;
  return d;
}

death_report restarted_in_job(std::uint64_t job, const std::string& work) {
  death_report d = restarted_at("", 40);
  d.path.reset();
  d.job = job;
  d.work = work;
  return d;
}

}  // namespace

TEST_CASE("a hang is a timeout, or an operator's restart of a worker that had been at one sample for 5 s") {
  CHECK(is_hang(restarted_at("tom.jpg", 40)));
  CHECK_FALSE(is_hang(restarted_at("tom.jpg", 4.9)));
  death_report d = restarted_at("tom.jpg", 40);
  d.ignored_stop_seconds = 10;  // the session ends, so the worker was killed anyway
  CHECK_FALSE(is_hang(d));
  d = restarted_at("tom.jpg", 40);
  d.path.reset();  // the worker was idle
  CHECK_FALSE(is_hang(d));
  d = restarted_at("tom.jpg", 1);
  d.cause = death_cause::hang;
  CHECK(is_hang(d));
  d.cause = death_cause::signal;
  CHECK_FALSE(is_hang(d));
}

TEST_CASE("each hang of a sample counts its earlier hangs, and not those of other samples") {
  std::vector<hung_work> known;
  death_report first = restarted_at("tom.jpg", 40);
  note_hang(known, first, work_kind::samples);
  CHECK(first.hung_before == 0);
  death_report other = restarted_at("cat.jpg", 40);
  note_hang(known, other, work_kind::samples);
  CHECK(other.hung_before == 0);
  death_report second = restarted_at("tom.jpg", 62, 3);
  second.time += 5min;
  note_hang(known, second, work_kind::samples);
  CHECK(second.hung_before == 1);
  REQUIRE(known.size() == 2);
  CHECK(hangs_and_way_out(known[0], work_kind::samples).starts_with("2 times: in worker/0 at 12:00:00 after 40 s, in worker/3 at 12:05:00 after 1 m 2 s; restarting a worker does not help"));
}

TEST_CASE(
    "an early restart or a crash at a sample that hung before is not a hang") {
  std::vector<hung_work> known;
  death_report first = restarted_at("tom.jpg", 40);
  note_hang(known, first, work_kind::samples);
  death_report sooner = restarted_at("tom.jpg", 0.0316);
  note_hang(known, sooner, work_kind::samples);
  CHECK(sooner.hung_before == 1);
  death_report crash = restarted_at("tom.jpg", 40);
  crash.cause = death_cause::signal;
  note_hang(known, crash, work_kind::samples);
  CHECK(crash.hung_before == 1);
  CHECK(known.back().hangs.size() == 1);
}

TEST_CASE("a job is identified by its number, whatever its work is called") {
  std::vector<hung_work> known;
  death_report first = restarted_in_job(78, "batch at position 0");
  note_hang(known, first, work_kind::jobs);
  death_report second = restarted_in_job(78, "sample 1237");
  note_hang(known, second, work_kind::jobs);
  CHECK(second.hung_before == 1);
  CHECK(known.back().name == "sample 1237");
  death_report other = restarted_in_job(79, "sample 1237");
  note_hang(known, other, work_kind::jobs);
  CHECK(other.hung_before == 0);
}

TEST_CASE("a data loader's sample that hangs in one job after the other is one entry, whose hangs are counted") {
  std::vector<hung_work> known;
  std::uint64_t job = 19;
  for (std::uint32_t before : {0U, 1U, 2U}) {
    death_report d = restarted_in_job(job++, "sample 350");
    d.cause = death_cause::hang;
    note_hang(known, d, work_kind::batches);
    CHECK(d.hung_before == before);
  }
  REQUIRE(known.size() == 1);
  CHECK(hangs_in_words(known[0]).starts_with("3 times: "));
  worker_status w;
  w.current_sample = "sample 350 (job 22)";
  CHECK(works_on(w, known[0], work_kind::batches));
  w.current_sample = "sample 35 (job 21)";
  CHECK_FALSE(works_on(w, known[0], work_kind::batches));
}

TEST_CASE("a data loader's batch is known by its job until its sample is known") {
  std::vector<hung_work> known;
  death_report first = restarted_in_job(78, "batch at position 0");
  note_hang(known, first, work_kind::batches);
  death_report second = restarted_in_job(78, "sample 1237");
  note_hang(known, second, work_kind::batches);
  CHECK(second.hung_before == 1);
}

TEST_CASE("a job ended by a time limit is reported as such") {
  std::vector<hung_work> known;
  death_report limited = restarted_in_job(501, "./job.sh");
  limited.cause = death_cause::hang;
  note_hang(known, limited, work_kind::jobs);
  CHECK(known.back().hangs.back().timed_out);
  CHECK(hangs_in_words(known[0]).ends_with(", its time limit"));
  death_report restarted = restarted_in_job(501, "./job.sh");
  note_hang(known, restarted, work_kind::jobs);
  CHECK_FALSE(known.back().hangs.back().timed_out);
  CHECK(hangs_and_way_out(known[0], work_kind::jobs).find("a time limit does") == std::string::npos);  // the job has a time limit
}

TEST_CASE("advice about a sample that hangs is not repeated once the session itself has killed a worker for it") {
  std::vector<hung_work> known;
  death_report restarted = restarted_at("tom.jpg", 40);
  note_hang(known, restarted, work_kind::samples);
  CHECK(hangs_and_way_out(known[0], work_kind::samples).find("item_timeout") != std::string::npos);
  death_report timed_out = restarted_at("tom.jpg", 40);
  timed_out.cause = death_cause::hang;
  note_hang(known, timed_out, work_kind::samples);
  CHECK(hangs_and_way_out(known[0], work_kind::samples).find("item_timeout") == std::string::npos);
}

TEST_CASE("the history of hangs is bounded") {
  std::vector<hung_work> known;
  for (int i = 0; i < 100; ++i) {
    death_report d = restarted_at("sample " + std::to_string(i), 40);
    note_hang(known, d, work_kind::samples);
  }
  CHECK(known.size() == hung_work_max);
  CHECK(known.back().name == "sample 99");
  for (int i = 0; i < 40; ++i) {
    death_report d = restarted_at("sample 99", 40);
    note_hang(known, d, work_kind::samples);
  }
  CHECK(known.back().hangs.size() == hangs_kept);
}

TEST_CASE("a stall at a sample that hung before says how often, when and in which worker, and what helps") {
  progress_facts f = asking();
  f.under_way = {batch_at(17, batch_stage::begun, 3)};
  f.status.workers.push_back(worker_in(3, child_state::ready));
  f.status.workers.back().current_sample = "cats/tom.jpg";
  f.status.workers.back().current_sample_seconds = 7.25;
  CHECK(find_blocker(f).hung_before == 0);
  death_report d = restarted_at("cats/tom.jpg", 40);
  note_hang(f.status.hung, d, work_kind::samples);
  const awaited found = find_blocker(f);
  CHECK(found.hung_before == 1);
  CHECK(found.text.find("in batch 17 of epoch 0; it hung before, 1 time: in worker/0 at 12:00:00 after 40 s; restarting a worker does not help") !=
        std::string::npos);
  CHECK(found.text.find("item_timeout") != std::string::npos);
  f.status.workers.back().current_sample = "cats/other.jpg";
  CHECK(find_blocker(f).hung_before == 0);
}
