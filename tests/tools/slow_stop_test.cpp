// What `stop --wait` reports while a session takes long to stop.
#include "tools/penstock/control/slow_stop.hpp"

#include "runtime/telemetry/report_json.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace penstock;

namespace {

session_status stopping() {
  session_status s;
  s.pid = 4711;
  s.state = session_state::stopping;
  s.gpu_placement = "process";
  s.gpu_state = child_state::ready;
  s.gpu_pid = 4712;
  worker_status w;
  w.id = 3;
  w.pid = 4713;
  s.workers = {w};
  return s;
}

std::vector<cli::awaited_end> awaited(const session_status& s) {
  return cli::awaited_ends(telemetry::as_json(s));
}

}  // namespace

TEST_CASE("a stop says at once which busy worker it waits for, until when, and how to be faster") {
  session_status s = stopping();
  s.workers[0].current_sample = "sample 37 (job 78)";
  s.workers[0].current_sample_seconds = 20;  // samples of its batch
  s.workers[0].current_work_seconds = 7;
  s.jobs.emplace();
  s.jobs->of_batches = true;
  auto status = telemetry::as_json(s);
  status["killed_in_seconds"] = 7.4;
  CHECK(cli::held_up_by(status) ==
        "waiting for worker/3 (pid 4713), which has been working on sample 37 for 7 s; it will be killed in 8 s if it does not end; "
        "`penstock stop --now` kills it at once\n");
  status["killed_in_seconds"] = 0;
  CHECK(cli::awaited_ends(status)[0].words.ends_with("; it is being killed"));
  status["workers"][0]["current_sample_seconds"] = 0.5;  // like any worker that is not stuck
  CHECK(cli::held_up_by(status).empty());
}

TEST_CASE("a worker that loads a sample is named with it, and any other worker with its pid") {
  session_status s = stopping();
  REQUIRE(awaited(s).size() == 1);
  CHECK(awaited(s)[0].words ==
        "worker/3 (pid 4713), which has not exited yet; it will be killed if it does not end in time");
  s.workers[0].current_sample = "cats/tom.jpg";
  s.workers[0].current_sample_seconds = 7;
  CHECK(awaited(s)[0].words == "worker/3 (pid 4713), which has been working on cats/tom.jpg for 7 s; it will be killed if it does not end in time");
  s.workers[0].current_epoch = 2;
  s.workers[0].current_sequence = 9;
  CHECK(awaited(s)[0].words ==
        "worker/3 (pid 4713), which has been working on cats/tom.jpg for 7 s (batch 9 of epoch 2); it will be killed if it does not end in time");
  s.workers.push_back(s.workers[0]);
  s.workers[1].id = 4;
  CHECK(awaited(s).size() == 2);
}

TEST_CASE("after the workers the owner's process is named, then the group, then the program") {
  session_status s = stopping();
  s.workers[0].pid.reset();
  CHECK(awaited(s)[0].what == "gpu");
  auto status = telemetry::as_json(s);
  status["killed_in_seconds"] = 8.2;
  CHECK(cli::awaited_ends(status)[0].words ==
        "the GPU owner (pid 4712), which is waiting for its sink to finish; it will be killed in 9 s if it does not end; `penstock stop --now` kills it at once");
  s.gpu_state = child_state::stopped;
  s.group = group_status{};
  s.group->waits_for = "rank 2 (on host-b)";
  CHECK(awaited(s)[0].words == "the other ranks: rank 2 (on host-b)");
  s.group.reset();
  CHECK(awaited(s)[0].words.starts_with("its program (pid 4711)"));
}

TEST_CASE("status and why name what a stopping session waits for, and nothing for a running one") {
  session_status s = stopping();
  const auto told = cli::stopping_for(telemetry::as_json(s));
  REQUIRE(told.size() == 1);
  CHECK(told[0].at("target") == "worker/3");
  CHECK(cli::stopping_in_words(told, 0) == "waiting for worker/3 (pid 4713), which has not exited yet; it will be killed if it does not end in time\n");
  s.state = session_state::ok;
  CHECK(cli::stopping_for(telemetry::as_json(s)).is_null());
}

TEST_CASE("an owner in the program's own process is reported as the program") {
  session_status s = stopping();
  s.workers.clear();
  s.gpu_placement = "embedded";
  CHECK(awaited(s)[0].what == "program");
}
