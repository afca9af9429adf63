// What `stop --wait` reports about processes that were killed and a position that was not saved.
#include "tools/penstock/control/stop_cost.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using json = nlohmann::ordered_json;

namespace {

json killed(int worker) {
  return {{"worker", worker}, {"text", "worker " + std::to_string(worker) + " (pid 17) was killed"}, {"death", {{"pid", 17}, {"ignored_stop_seconds", 10.0}}}};
}

json run(const char* outcome) {
  return {{"id", "photos@1"}, {"outcome", outcome}, {"config_file", "photos.toml"}, {"files", json::object()}};
}

}  // namespace

TEST_CASE("a worker that was killed at the stop is reported in one line, and several are counted") {
  const json died{{"worker", 1}, {"text", "worker 1 ended: SIGSEGV"}, {"death", {{"pid", 5}, {"ignored_stop_seconds", nullptr}}}};
  const cli::stop_cost one(run("finished"), json::array({died, killed(0)}), "process");
  CHECK(one.killed_for_people() == "worker 0 (pid 17) was killed: it had not stopped within 10 s of the request\n");
  CHECK(one.as_json() == json{{"killed", {{{"target", "worker/0"}, {"pid", 17}, {"text", "worker 0 (pid 17) was killed"}}}}, {"position_saved", nullptr}});
  const cli::stop_cost later(run("finished"), json::array({killed(1), {{"kind", "stopping"}, {"text", "asked"}}, killed(0)}), "process");
  CHECK(later.as_json().at("killed").size() == 1);  // worker 1 had been drained before
  const cli::stop_cost two(run("finished"), json::array({killed(0), killed(1)}), "process");
  CHECK(two.killed_for_people() == "2 processes were killed: `penstock deaths --session photos@1` lists them\n");
}

TEST_CASE("the work of a killed worker is named once: while the stop waits for it, or at the end if it was killed at once") {
  json late = killed(0);
  late["text"] = "worker 0 (pid 17) was killed: it had not stopped within 10 s of the request, while working on sample 17 (cat.jpg), in batch 4 of epoch 2";
  CHECK(cli::stop_cost(run("stopped"), json::array({late}), "process").killed_for_people() ==
        "worker 0 (pid 17) was killed: it had not stopped within 10 s of the request\n");
  late["text"] = "worker 0 (pid 17) was killed: it had not stopped within 10 s of the request, while running job 7 (thumbnail)";
  CHECK(cli::stop_cost(run("stopped"), json::array({late}), "process").killed_for_people() ==
        "worker 0 (pid 17) was killed: it had not stopped within 10 s of the request\n");
  json at_once = late;
  at_once["death"]["ignored_stop_seconds"] = 0.0;
  CHECK(cli::stop_cost(run("stopped"), json::array({at_once}), "process").killed_for_people() == late["text"].get<std::string>() + "\n");
}

TEST_CASE("only a stopped run without a state file has lost its position") {
  const auto says = [](const json& ended, const char* ends) { return cli::stop_cost(ended, json::array(), ends).position_for_people(); };
  CHECK(says(run("stopped"), "process").starts_with("its position is lost"));
  CHECK(says(run("stopped"), "process").find("`penstock run --state FILE`") != std::string::npos);
  CHECK(says(run("stopped"), "parent").starts_with("its position is lost"));
  CHECK(says(run("stopped"), "parent").find("`penstock launch --state FILE`") != std::string::npos);
  CHECK(says(run("finished"), "process").empty());
  CHECK(says(run("stopped"), "session").empty());  // a program saves its own position
  json with_state = run("stopped");
  with_state["files"]["state"] = "run.state";
  CHECK(says(with_state, "process").empty());
  CHECK(cli::stop_cost(with_state, json::array(), "process").as_json().at("position_saved") == true);
  json pool = run("stopped");
  pool["jobs"] = json::object();
  CHECK(says(pool, "process").empty());
  CHECK(cli::stop_cost().as_json() == json{{"killed", json::array()}, {"position_saved", nullptr}});
}

TEST_CASE("after a run was killed, the last line says how to continue from its state") {
  json killed = run("died");
  CHECK(cli::how_to_resume(killed).empty());  // there is no state to continue from
  killed["files"]["state"] = "/data/my run.state";
  CHECK(cli::how_to_resume(killed) ==
        "it died; `penstock run photos.toml --state '/data/my run.state'`, with the other options of the run, continues from that state");
  CHECK(cli::stop_cost(killed, json::array(), "process").resume_for_people() == cli::how_to_resume(killed) + "\n");
  killed["files"]["state"] = "/proc/self/stat";  // this file has just been written, so a later run wrote it
  killed["ended"] = "2000-01-01T00:00:00.000000Z";
  CHECK(cli::how_to_resume(killed).empty());
  killed["ended"] = nullptr;
  killed["group"] = "stamps";
  CHECK(cli::how_to_resume(killed) == "it died; the command that started the group continues from that state");
  killed["outcome"] = "stopped";
  CHECK(cli::how_to_resume(killed).empty());
}
