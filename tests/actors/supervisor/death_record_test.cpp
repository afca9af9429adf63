// The report of a worker's death, and its wording.
#include "actors/supervisor/death_record.hpp"

#include "runtime/supervision/hang_history.hpp"

#include <catch2/catch_test_macros.hpp>

#include <csignal>
#include <tuple>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

const steady_time start{1h};

/// A worker that died of a signal while it was working on this.
supervisor::worker_facts died_of(int signal, const std::string& work) {
  supervisor::worker_facts w;
  w.who = {0, 1};
  w.pid = 17;
  w.started = start;
  w.ended = process::exit_report{17, process::exit_report::how::signalled, signal};
  w.last_flight.state.at = arena::phase::loading;
  w.last_flight.sample_name = work;
  return w;
}

supervision::termination stopped_but_did_not(nanoseconds patience) {
  supervision::termination ending({}, start);
  ending.stop(start, patience);
  for (nanoseconds t = 0ms; t <= patience + 500ms; t += 100ms) static_cast<void>(ending.advance(start + t));
  return ending;
}

}  // namespace

TEST_CASE("a job that was running when its worker was killed at a stop is named by number, without blame") {
  const auto w = died_of(SIGKILL, "sample 1237 (job 78)");
  const death_report d = as_report(w, stopped_but_did_not(2s), {}, work_kind::jobs, start + 3s);
  CHECK(d.cause == death_cause::stopped);
  CHECK(d.job == 78);
  CHECK(d.work == "sample 1237");
  CHECK(d.attempt == 0);
  CHECK(d.reason.empty());
  CHECK(supervisor::end_text(d) + supervisor::blame_text(d, work_kind::jobs) ==
        "was killed: it had not stopped within 2 s of the request, while running job 78 (sample 1237)");
}

TEST_CASE("the text about a death in a data loader names the sample and no job") {
  supervision::termination ending({}, start);
  ending.kill(start + 40s);
  static_cast<void>(ending.advance(start + 40s));
  auto w = died_of(SIGKILL, "sample 1237 (job 78)");
  w.last_flight.since = start;
  scheduler::blame_decision decision;
  decision.held = 2;
  death_report d = as_report(w, ending, decision, work_kind::batches, start + 40s);
  CHECK(d.job == 78);
  d.hung_before = 1;
  const std::string text = supervisor::end_text(d) + supervisor::blame_text(d, work_kind::batches) + supervisor::history_text(d, work_kind::batches);
  CHECK(text.starts_with("was killed on request, while loading sample 1237, for 40 s; that had hung 1 time before: "));
  CHECK(text.find("DataLoader(timeout=60") != std::string::npos);
  CHECK(text.ends_with("; 2 batches to load again"));
  CHECK(text.find("job") == std::string::npos);
}

TEST_CASE("a death in a data loader has the index of its sample, and one in collate_fn has none") {
  const supervision::termination ending({}, start);
  scheduler::blame_decision decision;
  decision.blamed = schedule::blame{};
  decision.blamed->sample = 78;
  const death_report loading = as_report(died_of(SIGSEGV, "sample 1237 (job 78)"), ending, decision, work_kind::batches, start);
  CHECK(std::tuple(loading.job, loading.sample) == std::tuple(78U, 1237U));
  const death_report collating = as_report(died_of(SIGSEGV, "collate_fn, with the samples [4, 5] (job 78)"), ending, decision, work_kind::batches, start);
  CHECK(std::tuple(collating.job, collating.sample.has_value()) == std::tuple(78U, false));
  CHECK(supervisor::blame_text(collating, work_kind::batches) == ", while running collate_fn, with the samples [4, 5]");
  CHECK_FALSE(as_report(died_of(SIGSEGV, "sample 3 of shard 1 (job 78)"), ending, decision, work_kind::batches, start).sample);
}

TEST_CASE("a worker that is killed at a stop has the sample and batch in its hands, and no blame") {
  const supervision::termination ending = stopped_but_did_not(0s);
  scheduler::blame_decision decision;
  decision.in_hand = 17;
  decision.epoch = 2;
  decision.sequence = 4;
  death_report d = as_report(died_of(SIGKILL, "cat.jpg"), ending, decision, work_kind::samples, start + 1s);
  CHECK(std::tuple(d.sample, d.epoch, d.sequence, d.attempt) == std::tuple(17U, 2U, 4U, 0U));
  CHECK(supervisor::blame_text(d, work_kind::samples) == ", while working on sample 17 (cat.jpg), in batch 4 of epoch 2");
  decision.in_hand.reset();  // the ledger does not know the lease
  d = as_report(died_of(SIGKILL, "cat.jpg"), ending, decision, work_kind::samples, start + 1s);
  CHECK_FALSE(d.sample);
  CHECK(supervisor::blame_text(d, work_kind::samples) == ", while working on 'cat.jpg'");
}

TEST_CASE("the log's line about a death says what happens next and which command shows the stack") {
  const supervision::termination ending({}, start);
  scheduler::blame_decision decision;
  decision.blamed = schedule::blame{};
  decision.held = 2;
  auto w = died_of(SIGSEGV, "sample 37 (job 10)");
  w.pid = 4711;
  w.stack = {"/lib/libc.so.6+0x167ad8"};
  const death_report d = as_report(w, ending, decision, work_kind::batches, start);
  CHECK(supervisor::death_text(d, work_kind::batches) + supervisor::next_text(d, {0, 1, child_state::backoff, 0, start}, start) ==
        "worker 0 (pid 4711) ended: SIGSEGV, while loading sample 37; 2 batches to load again; a replacement starts; stack: `penstock deaths "
        "--stacks`, with --last after the end");
  w.stack.clear();
  const death_report without = as_report(w, ending, decision, work_kind::batches, start);
  CHECK(supervisor::next_text(without, {0, 1, child_state::backoff, 0, start + 4s}, start) == "; a replacement starts in 4 s");
  CHECK(supervisor::next_text(without, {0, 1, child_state::failed}, start) == "; it is not replaced");
  CHECK(supervisor::next_text(without, {0, 1, child_state::stopped}, start).empty());
}

TEST_CASE("a worker that an operator kills is reported with its work and how long it took") {
  supervision::termination ending({}, start);
  ending.kill(start + 40s);
  static_cast<void>(ending.advance(start + 40s));
  auto w = died_of(SIGKILL, "cat.jpg");
  w.last_flight.since = start;
  scheduler::blame_decision decision;
  decision.held = 2;
  death_report d = as_report(w, ending, decision, work_kind::samples, start + 40s);
  CHECK(d.cause == death_cause::stopped);
  CHECK(std::tuple(d.path, d.attempt, d.worked_seconds) == std::tuple("cat.jpg", 0U, 40.0));
  CHECK(supervisor::end_text(d) + supervisor::blame_text(d, work_kind::samples) + supervisor::history_text(d, work_kind::samples) ==
        "was killed on request, while working on 'cat.jpg', for 40 s; 2 batches to load again");
  d.hung_before = 1;
  CHECK(supervisor::history_text(d, work_kind::samples).find("; that had hung 1 time before: restarting a worker does not help") != std::string::npos);
  d.ignored_stop_seconds = 10;  // the session stops, so nothing is tried again
  CHECK(supervisor::history_text(d, work_kind::samples) == "; that had hung 1 time before; 2 batches to load again");
  w.last_flight.state.at = arena::phase::idle;
  d = as_report(w, ending, {}, work_kind::samples, start + 40s);
  CHECK_FALSE(d.path);
  CHECK(supervisor::end_text(d) + supervisor::blame_text(d, work_kind::samples) + supervisor::history_text(d, work_kind::samples) == "was killed on request");
}

TEST_CASE("a hang's duration is measured when the hang is detected, however long the worker then takes to end") {
  supervision::termination ending({}, start);
  ending.hang(start + 40s, death_cause::hang, "it has been working on 'cat.jpg' for 40 s");
  static_cast<void>(ending.advance(start + 40s));
  auto w = died_of(SIGABRT, "cat.jpg");
  w.last_flight.since = start;
  scheduler::blame_decision decision;
  decision.blamed = {17, 1};
  CHECK(as_report(w, ending, decision, work_kind::samples, start + 42s).worked_seconds == 40.0);
}

TEST_CASE("the record of a worker over its memory limit names what it was loading when that was noticed, without blame") {
  supervision::termination ending({}, start);
  ending.retire(death_cause::memory, "it used 1.15 GiB");
  ending.stop(start + 1s, 10s);
  auto w = died_of(0, "");
  w.ended = process::exit_report{17, process::exit_report::how::exited, 0};
  w.last_flight = {};
  arena::flight_reading then;
  then.state.at = arena::phase::loading;
  SECTION("a session") {
    then.sample_name = "cat.jpg";
    then.sample = arena::flight_sample{40, 1};
    w.over_memory = supervisor::excess_of(then, 1 << 30, 1 << 29);
    const death_report d = as_report(w, ending, {}, work_kind::samples, start + 5s);
    CHECK(std::tuple(d.sample.has_value(), d.path, d.attempt, d.worked_seconds.has_value()) == std::tuple(false, "cat.jpg", 0U, false));
    CHECK(supervisor::end_text(d) + supervisor::blame_text(d, work_kind::samples) ==
          "was stopped: it used 1.15 GiB; it was loading sample 'cat.jpg' when that was noticed");
  }
  SECTION("a data loader") {
    then.sample_name = "sample 40 (job 7)";
    w.over_memory = supervisor::excess_of(then, 1 << 30, 1 << 29);
    const death_report d = as_report(w, ending, {}, work_kind::batches, start + 5s);
    CHECK(std::tuple(d.sample.has_value(), d.work, d.job) == std::tuple(false, "sample 40", 7U));
    CHECK(supervisor::blame_text(d, work_kind::batches) == "; it was loading sample 40 when that was noticed");
  }
  SECTION("a pool") {
    then.sample_name = "thumbnail (job 7)";
    w.over_memory = supervisor::excess_of(then, 1 << 30, 1 << 29);
    const death_report d = as_report(w, ending, {}, work_kind::jobs, start + 5s);
    CHECK(supervisor::blame_text(d, work_kind::jobs) == "; it was running thumbnail (job 7) when that was noticed");
    CHECK_FALSE(supervisor::is_told_as_job(d, work_kind::jobs, true));
  }
  SECTION("between two samples") {
    w.over_memory = supervisor::excess_of({}, 1 << 30, 1 << 29);
    CHECK(supervisor::blame_text(as_report(w, ending, {}, work_kind::batches, start + 5s), work_kind::batches).empty());
  }
}

TEST_CASE("an operator's kill of a worker over its memory limit counts as a hang of the sample that it had been loading for 5 s") {
  supervision::termination ending({}, start);
  ending.retire(death_cause::memory, "it used 804 MiB");
  ending.kill(start + 6s);
  static_cast<void>(ending.advance(start + 6s));
  auto w = died_of(SIGKILL, "sample 40 (job 7)");
  w.last_flight.since = start;
  w.over_memory = supervisor::excess_of(w.last_flight, 2, 1);
  const death_report d = as_report(w, ending, {}, work_kind::batches, start + 6s);
  CHECK(d.cause == death_cause::stopped);
  CHECK(d.worked_seconds == 6);
  CHECK(supervision::is_hang(d));
  CHECK(supervisor::end_text(d) + supervisor::blame_text(d, work_kind::batches) == "was killed on request, while loading sample 40");
}

TEST_CASE("the text about a data loader's worker that hung names its sample once") {
  death_report d;
  d.cause = death_cause::hang;
  d.reason = "it has been loading sample 350 for 4.14 s";
  d.job = 19;
  d.work = "sample 350";
  CHECK(supervisor::death_text(d, work_kind::batches) == "worker 0 was killed: it has been loading sample 350 for 4.14 s");
  d.reason = "no heartbeat for 30 s";
  CHECK(supervisor::death_text(d, work_kind::batches) == "worker 0 was killed: no heartbeat for 30 s, while loading sample 350");
}

TEST_CASE("the text about a worker that was replaced because of its memory says how much it used") {
  supervision::termination ending({}, start);
  ending.retire(death_cause::memory, "it used 70.0 MiB of private memory");
  CHECK(supervisor::end_text(as_report(died_of(SIGKILL, ""), ending, {}, work_kind::samples, start)) ==
        "was stopped: it used 70.0 MiB of private memory");
}

TEST_CASE("a worker that got no time to stop is not reported as late") {
  const death_report d = as_report(died_of(SIGKILL, "cat.jpg"), stopped_but_did_not(100ms), {}, work_kind::samples, start + 3s);
  CHECK(d.path == "cat.jpg");
  CHECK_FALSE(d.job);
  CHECK(supervisor::end_text(d).starts_with("was killed right after the stop, without time to finish"));
}

TEST_CASE("the text about a SIGKILL that the session did not send says so") {
  const supervision::termination ending({}, start);
  auto w = died_of(SIGKILL, "cat.jpg");
  CHECK(supervisor::end_text(as_report(w, ending, {}, work_kind::samples, start + 3s)) == "ended: SIGKILL");
  w.sent_signal = ending.why_signalled(*w.ended, {false, 0, true});
  CHECK(supervisor::end_text(as_report(w, ending, {}, work_kind::samples, start + 3s)) ==
        "ended: SIGKILL (sent by another process or by its own code, not by the session; no OOM kill was counted)");
}

TEST_CASE("a death that is reported as the end of a job is not reported again") {
  death_report d;
  d.cause = death_cause::signal;
  CHECK_FALSE(supervisor::is_told_as_job(d, work_kind::jobs, true));  // the worker was idle
  d.job = 501;
  CHECK(supervisor::is_told_as_job(d, work_kind::jobs, true));
  CHECK_FALSE(supervisor::is_told_as_job(d, work_kind::jobs, false));
  CHECK_FALSE(supervisor::is_told_as_job(d, work_kind::batches, false));
  d.cause = death_cause::hang;  // by a time limit, so the job has timed out
  CHECK(supervisor::is_told_as_job(d, work_kind::jobs, false));
}

TEST_CASE("the report of a job ended by its time limit does not advise setting one") {
  death_report d;
  d.cause = death_cause::hang;
  d.job = 501;
  d.hung_before = 1;
  CHECK(supervisor::history_text(d, work_kind::jobs) == "; that had hung 1 time before");
  d.cause = death_cause::stopped;
  CHECK(supervisor::history_text(d, work_kind::jobs).find("a time limit does: [jobs] timeout") != std::string::npos);
}
