// What `top` and `describe` show of a running session, from made-up facts.
#include "actors/host/pipeline_view.hpp"

#include "actors/host/limit_meter.hpp"
#include "actors/host/progress_ticker.hpp"
#include "actors/host/run_events.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/supervision/progress_watch.hpp"
#include "tests/runtime/supervision/progress_facts.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

TEST_CASE("a worker that exceeds its memory limit is reported once, with the sample that it was loading and the figures") {
  host::worker_watch watch;
  worker_status w = worker_in(1, child_state::draining);
  w.over_memory = memory_excess{1178ULL << 20U, 600ULL << 20U, "sample 40 (job 7)", {}};
  std::vector<event> told;
  for (int i = 0; i < 3; ++i) {
    for (event& e : watch.look({w}, false, sacrificial, work_kind::batches)) {
      if (e.kind == event_kind::memory_exceeded) told.push_back(std::move(e));
    }
    w.over_memory->bytes += 1;
  }
  REQUIRE(told.size() == 1);
  CHECK(told[0].sample == 40);
  CHECK(told[0].text == "worker 1 is replaced after its current batch: it used 1.15 GiB of private memory, but [loader.limits] memory allows 600 MiB; it "
                        "was loading sample 40 when that was noticed");
}

TEST_CASE("the advice learns from status which worker is slow, limited, over its memory limit or drained") {
  session_status s;
  s.jobs.emplace().of_batches = true;
  s.workers = {worker_in(0, child_state::ready), worker_in(1, child_state::draining)};
  s.workers[0].current_sample = "sample 5 (job 3)";
  s.workers[0].current_work_seconds = 0.4;
  CHECK_FALSE(host::context_of(s, {}).longest);
  s.workers[1].current_sample = "sample 40 (job 4)";
  s.workers[1].current_work_seconds = 6;
  s.workers[1].current_limit_seconds = 60;
  s.workers[1].over_memory = memory_excess{2048, 1024, "sample 40 (job 4)", {}};
  s.stalled = stall_report{stall_kind::sample, "waiting for worker/1", 6, 1};
  const telemetry::limit_context context = host::context_of(s, {});
  REQUIRE(context.longest);
  CHECK(context.longest->name == "sample 40");
  CHECK(context.stalled_limit == 60s);
  CHECK(context.over_memory.size() == 1);
  CHECK_FALSE(context.drained);
  s.workers = {worker_in(0, child_state::stopped), worker_in(1, child_state::stopped)};
  for (worker_status& w : s.workers) w.why_stopped = vacancy::drained;
  CHECK(host::context_of(s, {}).drained);
  s.waits_for_hosts = hosts_wait{2, 60};
  CHECK(host::context_of(s, {}).waits_for_hosts);
}

TEST_CASE("top and a stall report name the same process") {
  supervision::progress_facts f = asking();
  SECTION("a worker") {
    f.under_way = {batch_at(2, batch_stage::leased)};
  }
  SECTION("a slow sink in another process") {
    f.consumer_waits = false;
    f.owner_is_elsewhere = true;
    f.under_way = {batch_at(5, batch_stage::taken), batch_at(6, batch_stage::ordered)};
  }
  supervision::progress_watch watch;
  const steady_time start = steady_time{} + 1h;
  watch.look(start, f);
  watch.look(start + 5s, f);
  REQUIRE(watch.stalled());
  const auto answer = host::pipeline_as_json(f, 0, start);
  CHECK("waiting for " + answer.at("waits_for").get<std::string>() == watch.stalled()->text);
  CHECK(answer.at("waits_for_worker").is_null() != watch.stalled()->worker.has_value());
}

TEST_CASE("a worker's rate stands next to the worker, and is null if it is unknown") {
  auto workers = nlohmann::ordered_json::array({{{"id", 3}}, {{"id", 4}}});
  host::add_rates(workers, {{3, 12.34}});
  CHECK(workers[0].at("rate") == 12.3);
  CHECK(workers[1].at("rate").is_null());
}

TEST_CASE("a batch counts as uploading once it has a device buffer, so a slow consumer's batches do not") {
  supervision::progress_facts f = asking();
  f.under_way = {batch_at(0, batch_stage::taken), batch_at(1, batch_stage::submitted), batch_at(2, batch_stage::ordered),
                 batch_at(3, batch_stage::loaded)};
  const auto batches = host::pipeline_as_json(f, 0, steady_time{} + 1h).at("batches");
  CHECK(batches.at("loaded") == 2);
  CHECK(batches.at("uploading") == 1);
}

TEST_CASE("the rows that a worker has finished are known while it works on a batch") {
  auto flights = arena::flight_recorders::create(2);
  REQUIRE(flights);
  session_status s;
  s.workers = {worker_in(0, child_state::ready), worker_in(1, child_state::ready)};
  auto writer = arena::flight_writer::map(flights->fd(), 0);
  REQUIRE(writer);
  CHECK(host::loading_of(s, *flights).empty());
  writer->publish({arena::phase::loading, 3, 7, 1}, "cat.jpg");
  CHECK(host::loading_of(s, *flights).at(0).slot == 3);
  CHECK(host::loading_of(s, *flights).at(0).rows == 7);
  writer->publish({arena::phase::collating, 3, 15, 1}, "cat.jpg");
  CHECK(host::loading_of(s, *flights).at(0).rows == 16);
  writer->rest();
  CHECK(host::loading_of(s, *flights).empty());
}

TEST_CASE("the start of the sacrificial worker is explained") {
  host::worker_watch watch;
  const auto news = watch.look({worker_in(0, child_state::starting), worker_in(sacrificial, child_state::starting)}, false, sacrificial, work_kind::samples);
  REQUIRE(news.size() == 2);
  CHECK(news[0].text == "worker 0 started (pid 100)");
  CHECK(news[1].text == "worker 64 started (pid 164): the sacrificial worker, which works alone on what may have killed other workers");
}

namespace {

/// A pool whose workers run these jobs.
session_status pool_that_runs(const arena::flight_recorders& flights, const std::vector<std::string>& works) {
  session_status s;
  s.jobs.emplace();
  for (std::uint32_t i = 0; i < works.size(); ++i) {
    worker_status w;
    w.id = i;
    w.pid = 100 + static_cast<std::int32_t>(i);
    w.state = child_state::ready;
    s.workers.push_back(w);
    arena::flight_writer::map(flights.fd(), i).value().publish({arena::phase::loading, 0, 0, 1}, works[i]);
  }
  return s;
}

}  // namespace

TEST_CASE(
    "a pool's jobs count once, in total and by function, and count as waiting until a worker has started them") {
  auto flights = arena::flight_recorders::create(3);
  REQUIRE(flights);
  session_status s = pool_that_runs(*flights, {"shrink (job 5)", "shrink (job 6)", "sample 3 (job 7)"});
  s.jobs->submitted = 12;
  s.jobs->ok = 3;
  s.jobs->waiting = 2;  // plus two that workers have received but not begun, and two that wait again after a death
  s.jobs->handed = 5;
  s.jobs->functions = {{"shrink", 1, 5, 2, 0, 0}, {"load", 1, 2, 1, 0, 0}};
  const pool_statistics jobs = *host::look_closer(s, *flights, steady_time(1h)).jobs;
  CHECK(jobs.running == 3);
  CHECK(jobs.waiting == 6);
  CHECK(jobs.handed == 2);
  CHECK(jobs.functions[0].running + jobs.functions[1].running == jobs.running);
  CHECK(jobs.functions[0].waiting + jobs.functions[1].waiting == jobs.waiting);
  CHECK(jobs.functions[0].running >= 2);
}

TEST_CASE("the status of a worker says which sample it is loading, and at which attempt") {
  auto flights = arena::flight_recorders::create(1);
  REQUIRE(flights);
  session_status s;
  s.workers.resize(1);
  s.workers[0].pid = 17;
  arena::flight_writer worker = arena::flight_writer::map(flights->fd(), 0).value();
  worker.publish({arena::phase::loading, 0, 0, 1}, "cats/tom.jpg", arena::flight_sample{51, 2});
  s = host::look_closer(s, *flights, steady_time(1h));
  CHECK(std::tuple(s.workers[0].current_sample, s.workers[0].current_index, s.workers[0].current_attempt) == std::tuple("cats/tom.jpg", 51U, 2U));
  CHECK_FALSE(s.workers[0].current_epoch);
  batch_passage earlier{.epoch = 3, .sequence = 8};  // its slot now holds another batch
  earlier.at[static_cast<std::size_t>(batch_stage::loaded)] = 1;
  const std::vector<batch_passage> under_way{earlier, {.epoch = 3, .sequence = 10, .slot = 1}, {.epoch = 3, .sequence = 9}};
  s = host::look_closer(s, *flights, steady_time(1h), under_way);
  CHECK(std::tuple(s.workers[0].current_epoch, s.workers[0].current_sequence) == std::tuple(3U, 9U));
  worker.rest();
  s = host::look_closer(s, *flights, steady_time(1h), under_way);
  CHECK_FALSE(s.workers[0].current_epoch);
  CHECK_FALSE(s.workers[0].current_index);
  CHECK_FALSE(s.workers[0].current_attempt);
}
