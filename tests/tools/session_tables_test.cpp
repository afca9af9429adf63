// The tables of `penstock status` and `penstock deaths`, from a session's answers.
#include "tools/penstock/watch/session_tables.hpp"

#include "runtime/base/death_words.hpp"
#include "runtime/base/pauser.hpp"
#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/group/group_tables.hpp"
#include "tools/penstock/watch/death_stacks.hpp"
#include "tools/penstock/watch/description.hpp"
#include "tools/penstock/watch/stack_names.hpp"
#include "tools/penstock/watch/status_words.hpp"
#include "tools/penstock/watch/why_text.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

using namespace penstock;

namespace {

session_status status_with(std::optional<std::vector<gpu_process>> processes) {
  session_status s;
  s.session = "photos";
  s.gpu = {"cuda", "NVIDIA H200", "GPU-1"};
  s.gpu_state = child_state::ready;
  s.gpu_pid = 4127;
  s.gpu_processes = std::move(processes);
  return s;
}

cli::target worker_target(std::uint32_t worker) {
  cli::target one;
  one.kind = cli::target_kind::worker;
  one.worker = worker;
  return one;
}

std::string gpu_lines(const session_status& s) {
  cli::target gpu;
  gpu.kind = cli::target_kind::gpu;
  return cli::status_for_people(telemetry::as_json(s), gpu, 200);
}

}  // namespace

TEST_CASE("the processes on the GPU are shown with pid and memory, and as null when they are unknown") {
  const auto known =
      telemetry::as_json(status_with({{{4127, 1U << 30U}, {77, 0}}})).at("gpu").at("processes");
  REQUIRE(known.size() == 2);
  CHECK(known[0].at("pid") == 4127);
  CHECK(known[0].at("bytes") == 1U << 30U);
  CHECK(telemetry::as_json(status_with(std::nullopt)).at("gpu").at("processes").is_null());
  CHECK(telemetry::as_json(status_with(std::vector<gpu_process>())).at("gpu").at("processes").empty());
}

TEST_CASE("the owner is marked among the GPU's processes") {
  const std::string text = gpu_lines(status_with({{{4127, 1U << 30U}, {77, 512U << 20U}}}));
  CHECK(text.find("pid 4127, the owner (1.00 GiB), pid 77 (512 MiB)") != std::string::npos);
  CHECK(text.find("namespace") == std::string::npos);
}

TEST_CASE("pids that cannot be the owner's are shown as belonging to another pid namespace") {
  CHECK(gpu_lines(status_with({{{9, 1U << 30U}}})).find("another pid namespace") != std::string::npos);
}

TEST_CASE("without an answer from NVML the line is omitted") {
  CHECK(gpu_lines(status_with(std::nullopt)).find("NVML") == std::string::npos);
}

TEST_CASE("the sacrificial worker is labelled as such") {
  CHECK(cli::worker_name({{"id", 3}, {"sacrificial", false}}) == "worker/3");
  CHECK(cli::worker_name({{"id", 64}, {"sacrificial", true}}) == "worker/64 (sacrificial)");
  CHECK(cli::worker_name({{"worker", 64}, {"sacrificial", true}}) == "worker/64 (sacrificial)");
  CHECK(cli::worker_cell({{"worker", 64}, {"sacrificial", true}}) == "worker/64*");
  CHECK(cli::worker_cell({{"id", 3}, {"sacrificial", false}}) == "worker/3");
  // A session of an older version does not report which worker is sacrificial.
  CHECK(cli::worker_name({{"id", 64}}) == "worker/64");
}

TEST_CASE("deaths of workers and of GPU owners are one list in the order in which they happened") {
  death_report worker;
  worker.time = std::chrono::system_clock::time_point(std::chrono::seconds(20));
  owner_death_report owner;
  owner.time = std::chrono::system_clock::time_point(std::chrono::seconds(10));
  const nlohmann::ordered_json answer{{"deaths", {telemetry::as_json(worker)}},
                                      {"owner_deaths", {telemetry::as_json(owner)}}};
  const auto all = cli::all_deaths(answer);
  REQUIRE(all.size() == 2);
  CHECK_FALSE(all[0].contains("worker"));
  CHECK(all[1].contains("worker"));
  CHECK(cli::hint_after_deaths(all) == "penstock describe worker/0");
  CHECK(cli::deaths_for_people(all, work_kind::samples, 0).find("  gpu  ") != std::string::npos);
}

TEST_CASE("after a death the hint names the logs only if the dead process can have written to them") {
  const auto hint = [](const auto& death) {
    return cli::hint_after_deaths(nlohmann::ordered_json::array({telemetry::as_json(death)}));
  };
  death_report worker;
  worker.worker = 3;
  worker.cause = death_cause::signal;
  worker.signal.emplace("SIGKILL");
  CHECK(hint(worker) == "penstock describe worker/3");
  worker.last_output = "reading shard 7";
  CHECK(hint(worker) == "penstock logs worker/3 --previous");
  worker.last_output.clear();
  worker.signal = "SIGSEGV";  // the worker's signal handler writes the stack
  CHECK(hint(worker) == "penstock logs worker/3 --previous");
  worker.stack = {"libjpeg.so+0x17"};
  CHECK(hint(worker) == "penstock deaths --stacks");
  CHECK(cli::hint_after_deaths(nlohmann::ordered_json::array({telemetry::as_json(worker)}), true).empty());
  owner_death_report owner;
  owner.cause = death_cause::heartbeat;
  owner.signal = "SIGKILL";
  CHECK(hint(owner) == "penstock describe gpu");
  owner.last_words = "allocating the buffers\nout of memory";
  CHECK(hint(owner) == "penstock logs gpu --previous");
  const auto all = nlohmann::ordered_json::array({telemetry::as_json(owner)});
  CHECK(cli::deaths_for_people(all, work_kind::samples, 0).find("  out of memory\n") != std::string::npos);
  CHECK(cli::deaths_for_people(all, work_kind::samples, 0).find("  why\n") != std::string::npos);
  owner.reason = "no heartbeat for 10 s";
  const auto frozen = nlohmann::ordered_json::array({telemetry::as_json(owner)});
  CHECK(cli::deaths_for_people(frozen, work_kind::samples, 0).find("  no heartbeat for 10 s\n") != std::string::npos);
}

namespace {

session_status pool_status() {
  session_status s;
  s.session = "thumbs";
  s.pid = 77;
  s.state = session_state::ok;
  s.jobs = pool_statistics{};
  s.jobs->submitted = 40;
  s.jobs->waiting = 12;
  s.jobs->running = 2;
  s.jobs->ok = 25;
  s.jobs->failed = 1;
  s.jobs->functions = {{"thumbnail", 11, 2, 24, 1, 3}, {"checksum", 1, 0, 1, 0, 0}};
  worker_status w;
  w.id = 1;
  w.state = child_state::ready;
  w.samples = 9;
  w.current_sample = "thumbnail (job 31)";
  w.current_sample_seconds = 1.5;
  w.last_death = death_report{};
  w.last_death->cause = death_cause::signal;
  w.last_death->worker = 1;
  w.last_death->signal = "SIGSEGV";
  w.last_death->job = 17;
  w.last_death->work = "thumbnail";
  w.last_death->attempt = 2;
  s.workers = {w};
  return s;
}

}  // namespace

TEST_CASE("the status of a pool shows its jobs, by function and by worker, and neither batches nor a GPU") {
  const std::string text = cli::status_for_people(telemetry::as_json(pool_status()), {}, 200);
  INFO(text);
  CHECK(text.starts_with("thumbs  ok  pid 77  40 jobs submitted, 12 waiting, 2 running, 25 ok, 1 failed\n"));
  CHECK(text.find("function   waiting  running  ok  failed  retried\n"
                  "thumbnail       11        2  24       1        3\n"
                  "checksum         1        0   1       0        0\n") != std::string::npos);
  CHECK(text.find("SIGSEGV in job 17") != std::string::npos);
  CHECK(text.find("thumbnail (job 31) for 1.5 s") != std::string::npos);
  for (const char* const word : {"epoch", "batch", "sample", "gpu"})
    CHECK(text.find(word) == std::string::npos);
}

TEST_CASE(
    "the progress of a data loader counts its batches, and cancelled jobs are named only if there are any") {
  session_status s = pool_status();
  CHECK(cli::progress_of_jobs(telemetry::as_json(s)) == "26 of 40 jobs");
  s.jobs->cancelled = 3;
  CHECK(cli::progress_of_jobs(telemetry::as_json(s)) == "29 of 40 jobs");
  CHECK(cli::jobs_for_people(telemetry::as_json(s)) == "40 jobs submitted, 12 waiting, 2 running, 25 ok, 1 failed, 3 cancelled");
  s.jobs->of_batches = true;
  s.batches_delivered = 1883;
  s.epoch = 7;
  CHECK(cli::progress_of_jobs(telemetry::as_json(s)) == "1883 batches, epoch 7");
  CHECK(cli::jobs_for_people(telemetry::as_json(s)) == "1883 batches delivered, 2 loading, 12 waiting for a worker, 1 failed try");
}

namespace {

/// A data loader whose worker/1 has died of sample 61 and is stuck at sample 37.
session_status loader_status() {
  session_status s = pool_status();
  s.session = "loader";
  s.jobs->of_batches = true;
  s.jobs->retried = 3;
  s.jobs->functions = {{"call", 12, 2, 25, 1, 3}};
  s.batches_delivered = 24;
  s.workers_ended_unexpectedly = 1;
  s.quarantined = 1;
  s.workers[0].current_sample = "sample 37 (job 31)";
  s.workers[0].last_death->work = "sample 61";
  s.workers[0].last_death->held = 1;
  s.hung.push_back({"sample 37", 31, {{0, 40, std::chrono::system_clock::time_point(std::chrono::hours(12))}}});
  return s;
}

/// Whether the text uses words about pools, whose jobs are unknown to a newcomer with a data loader.
bool has_words_of_pools(const std::string& text) {
  return text.find("job") != std::string::npos || text.find("poison") != std::string::npos || text.find("pool") != std::string::npos ||
         text.find("submitted") != std::string::npos || text.find("call ") != std::string::npos;
}

}  // namespace

TEST_CASE("the tables about a data loader show batches and samples, and use no word about pools") {
  const auto status = telemetry::as_json(loader_status());
  std::string text = cli::status_for_people(status, {}, 0);
  INFO(text);
  CHECK(text.starts_with("loader  ok  pid 77  24 batches delivered, 2 loading, 12 waiting for a worker, 3 failed tries\n"));  // 3 failed tries of one job
  CHECK(text.find("restarts  batches  memory  last death            loading\n") != std::string::npos);
  CHECK(text.find("SIGSEGV on sample 61  sample 37, in a batch begun 1.5 s ago\n") != std::string::npos);
  CHECK(text.find("sample 37 hung 1 time: in worker/0") != std::string::npos);
  CHECK(text.find("deaths cost 1 sample, which is quarantined") != std::string::npos);
  CHECK_FALSE(has_words_of_pools(text));
  const nlohmann::ordered_json pipeline{{"status", status}, {"batches", nullptr}, {"waits_for", "worker/1"}};
  text = cli::description_for_people(cli::description_of(pipeline, {}), 0);
  CAPTURE(text);
  CHECK(text.find("  retried           3 batches") != std::string::npos);
  CHECK(text.find("sample 61, attempt 2") != std::string::npos);
  CHECK(text.find("  loading           sample 37, in a batch begun 1.5 s ago") != std::string::npos);
  nlohmann::ordered_json worker = status.at("workers")[0];
  worker["current_work_seconds"] = 0.25;
  CHECK(cli::work_since(worker, work_kind::batches) == "sample 37 for 250 ms");
  CHECK(text.find("1 batch to load again") != std::string::npos);
  CHECK_FALSE(has_words_of_pools(text));
  text = cli::deaths_for_people(nlohmann::ordered_json::array({status.at("workers")[0].at("last_death")}), work_kind::batches, 0);
  CHECK(text.find("attempt  while loading\n") != std::string::npos);
  CHECK(text.find("      2  sample 61\n") != std::string::npos);
  CHECK_FALSE(has_words_of_pools(text));
}

TEST_CASE("an event is one line") {
  const nlohmann::ordered_json e{{"time", "2026-11-24T18:33:44.123456Z"}, {"kind", "batch_lost"}, {"worker", nullptr}, {"text", "sample 61 killed 3 workers\nand more"}};
  CHECK(cli::event_for_people(e, 0) == "2026-11-24 18:33:44.123  session    batch_lost          sample 61 killed 3 workers; and more");
}

TEST_CASE("a pool without jobs has no table of functions") {
  session_status s = pool_status();
  s.jobs = pool_statistics{};
  const std::string text = cli::status_for_people(telemetry::as_json(s), {}, 200);
  CHECK(text.find("0 jobs submitted") != std::string::npos);
  CHECK(text.find("function") == std::string::npos);
}

TEST_CASE("the description of a pool shows its jobs, by function and by worker") {
  const nlohmann::ordered_json pipeline{
      {"status", telemetry::as_json(pool_status())}, {"batches", nullptr}, {"waits_for", "2 running jobs"}};
  const std::string text = cli::description_for_people(cli::description_of(pipeline, {}), 200);
  INFO(text);
  CHECK(text.find("  progress          40 jobs submitted, 12 waiting") != std::string::npos);
  CHECK(text.find("    thumbnail       11 waiting, 2 running, 24 ok, 1 failed") != std::string::npos);
  CHECK(text.find("job 17 (thumbnail), attempt 2") != std::string::npos);
  CHECK(text.find("  running           thumbnail (job 31) for 1.5 s") != std::string::npos);
  for (const char* const word : {"epoch", "batch", "sample", "gpu"})
    CHECK(text.find(word) == std::string::npos);
}

TEST_CASE("deaths in a pool name job and work") {
  const auto all = nlohmann::ordered_json::array({telemetry::as_json(*pool_status().workers[0].last_death)});
  const std::string text = cli::deaths_for_people(all, work_kind::jobs, 200);
  INFO(text);
  CHECK(text.find("job  attempt  work") != std::string::npos);
  CHECK(text.find(" 17        2  thumbnail") != std::string::npos);
}

namespace {

/// A worker that loaded this sample when a SIGKILL ended it.
death_report killed_over(std::uint64_t sample, const std::string& path) {
  death_report d;
  d.worker = 1;
  d.cause = death_cause::signal;
  d.signal = "SIGKILL";
  d.phase = work_phase::loading;
  d.sample = sample;
  d.path = path;
  d.attempt = 1;
  d.reason = reason_of_sent_signal("no OOM kill was counted");
  return d;
}

}  // namespace

TEST_CASE("a sample that was being loaded when another process killed the worker is not blamed in any table") {
  const death_report d = killed_over(17385, "cats/tom.jpg");
  session_status s = status_with(std::nullopt);
  s.workers.resize(1);
  s.workers[0].last_death = d;
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find("  SIGKILL, sent by another process or by its own code; was loading sample 17385\n") !=
        std::string::npos);
  auto listed = nlohmann::ordered_json::array({telemetry::as_json(d)});
  std::string text = cli::deaths_for_people(listed, work_kind::samples, 0);
  CHECK(text.find("  path, or why\n") != std::string::npos);
  CHECK(text.find("  was loading cats/tom.jpg; sent by another process or by its own code, not by the session; no OOM kill was counted\n") != std::string::npos);
  nlohmann::ordered_json pipeline{{"status", telemetry::as_json(s)}, {"batches", {{"loading", 1}, {"loaded", 0}, {"uploading", 0}, {"ready", 0}, {"in_use", 0}}}, {"waits_for", "x"}};
  cli::target one;
  one.kind = cli::target_kind::worker;
  text = cli::description_for_people(cli::description_of(pipeline, one), 0);
  CHECK(text.find("  was loading     sample 17385 (cats/tom.jpg), attempt 1\n") != std::string::npos);
  CHECK(text.find("blamed") == std::string::npos);
}

TEST_CASE("a worker that another process killed while it was idle has the reason in the list of deaths") {
  death_report d = killed_over(1, "");
  d.sample.reset();
  d.path.reset();
  d.attempt = 0;
  const auto listed = nlohmann::ordered_json::array({telemetry::as_json(d)});
  CHECK(cli::deaths_for_people(listed, work_kind::samples, 0).find("  sent by another process or by its own code, not by the session; no OOM kill") != std::string::npos);
  CHECK(cli::death_in_a_cell(listed[0], work_kind::samples) == "SIGKILL, sent by another process or by its own code");
}

TEST_CASE("of a killed worker, the cell says which job of a pool it was running, or which sample of a data loader it was loading") {
  death_report d = killed_over(1, "");
  d.sample.reset();
  d.path.reset();
  d.job = 7;
  d.work = "sample 37";
  const auto one = telemetry::as_json(d);
  CHECK(cli::death_in_a_cell(one, work_kind::jobs) == "SIGKILL, sent by another process or by its own code; was running job 7");
  CHECK(cli::death_in_a_cell(one, work_kind::batches) == "SIGKILL, sent by another process or by its own code; was loading sample 37");
  d.signal = "SIGSEGV";
  d.reason.clear();
  CHECK(cli::death_in_a_cell(telemetry::as_json(d), work_kind::batches) == "SIGSEGV on sample 37");
  CHECK(cli::death_in_a_cell(telemetry::as_json(d), work_kind::jobs) == "SIGSEGV in job 7");
}

TEST_CASE("a worker that was killed at a stop is listed with its sample and batch, and an owner without a reason with a dash") {
  death_report d;
  d.cause = death_cause::stopped;
  d.signal = "SIGKILL";
  d.ignored_stop_seconds = 0;
  d.sample = 17;
  d.path = "cats/tom.jpg";
  d.epoch = 2;
  d.sequence = 4;
  owner_death_report owner;
  owner.cause = death_cause::stopped;
  owner.signal = "SIGKILL";
  owner.ignored_stop_seconds = 0;
  const std::string text = cli::deaths_for_people(nlohmann::ordered_json::array({telemetry::as_json(d), telemetry::as_json(owner)}), work_kind::samples, 0);
  INFO(text);
  CHECK(text.find("      17        -  cats/tom.jpg\n") != std::string::npos);
  CHECK(text.find("       -        -  -\n") != std::string::npos);
  session_status s = status_with(std::nullopt);
  worker_status w;
  w.state = child_state::stopped;
  w.last_death = d;
  s.workers = {w};
  const auto pipeline = nlohmann::ordered_json{{"status", telemetry::as_json(s)}, {"batches", nullptr}, {"waits_for", ""}};
  CHECK(cli::description_for_people(cli::description_of(pipeline, worker_target(0)), 0)
            .find("    worked on       sample 17 (cats/tom.jpg), in batch 4 of epoch 2\n") != std::string::npos);
}

TEST_CASE("why the session killed a worker is in the list of deaths, except that a hang needs only its sample") {
  death_report d = killed_over(5, "cats/tom.jpg");
  d.cause = death_cause::protocol;
  d.reason = "it closed its link but did not exit";
  const auto text_of = [&d] { return cli::deaths_for_people(nlohmann::ordered_json::array({telemetry::as_json(d)}), work_kind::samples, 0); };
  CHECK(text_of().find("  cats/tom.jpg; it closed its link but did not exit\n") != std::string::npos);
  d.cause = death_cause::hang;
  d.reason = "it has been working on 'cats/tom.jpg' for 30 s";
  CHECK(text_of().find("  cats/tom.jpg\n") != std::string::npos);
}

TEST_CASE("workers that died with the same stack share one, and every frame is named once") {
  death_report crashed = killed_over(5, "");
  crashed.signal = "SIGSEGV";
  crashed.reason.clear();
  crashed.incarnation = 1;
  crashed.stack = {"/lib/a.so+0x1", "/lib/b.so+0x2"};
  death_report again = crashed;
  again.worker = 2;
  death_report other = crashed;
  other.incarnation = 2;
  other.stack = {"/lib/b.so+0x2"};
  auto listed = nlohmann::ordered_json::array();
  for (const death_report& d : {crashed, again, other}) listed.push_back(telemetry::as_json(d));
  std::vector<std::vector<std::string>> asked;
  const std::string text = cli::stacks_for_people(listed, [&asked](const std::vector<std::string>& frames) {
    asked.push_back(frames);
    std::vector<std::string> named;
    for (const std::string& frame : frames) named.push_back("named " + frame);
    return named;
  });
  CHECK(asked == std::vector<std::vector<std::string>>{{"/lib/a.so+0x1", "/lib/b.so+0x2"}});
  CHECK(text ==
        "\nworker/1 incarnation 1, worker/2 incarnation 1, each SIGSEGV:\n  named /lib/a.so+0x1\n  named /lib/b.so+0x2\n"
        "\nworker/1 incarnation 2, SIGSEGV:\n  named /lib/b.so+0x2\n");
}

/// What Python writes when a loader's worker crashes while it imports a module.
constexpr std::string_view of_a_loader =
    "reading shard 7\nStack (most recent call first):\n"
    "  File \"<frozen importlib._bootstrap>\", line 241 in _call_with_frames_removed\n"
    "  File \"/usr/lib/python3.11/importlib/__init__.py\", line 126 in import_module\n"
    "  File \"/home/me/penstock/data.py\", line 12 in decode\n"
    "  File \"/home/me/penstock/worker.py\", line 7 in __getitem__\n"
    "  File \"/opt/lib/penstock/_loading.py\", line 424 in _samples\n"
    "  File \"/opt/lib/penstock/worker.py\", line 148 in _run\n"
    "  File \"/opt/lib/penstock/worker.py\", line 259 in <module>\n"
    "  File \"<frozen runpy>\", line 88 in _run_code\n"
    "  File \"/usr/lib/python3.9/runpy.py\", line 198 in _run_module_as_main";

TEST_CASE("of a Python stack, frames of penstock, of imports and of the program's start are counted, and all are shown on request") {
  death_report d = killed_over(5, "");
  d.last_output = of_a_loader;
  const auto same = [](const std::vector<std::string>& frames) { return frames; };
  CHECK(cli::stack_lines(telemetry::as_json(d), same, cli::frames_shown::of_user) ==
        std::vector<std::string>{"_call_with_frames_removed at <frozen importlib._bootstrap>:241", "(1 frame of penstock and Python)",
                                 "decode at /home/me/penstock/data.py:12", "__getitem__ at /home/me/penstock/worker.py:7", "(5 frames of penstock and Python)"});
  CHECK(cli::stack_lines(telemetry::as_json(d), same, cli::frames_shown::all).size() == 9);
  d.last_output = of_a_loader.substr(0, of_a_loader.find("  File \"/opt/lib/penstock/worker.py\""));  // long stacks are cut off
  CHECK(cli::stack_lines(telemetry::as_json(d), same, cli::frames_shown::of_user).back() == "(1 frame of penstock and Python)");
  d.last_output = "Stack (most recent call first):\n  File \"/usr/lib/python3.11/threading.py\", line 982 in run\n  File \"/a/b.py\", line 3 in f";
  CHECK(cli::stack_lines(telemetry::as_json(d), same, cli::frames_shown::of_user) ==
        std::vector<std::string>{"run at /usr/lib/python3.11/threading.py:982", "f at /a/b.py:3"});
}

TEST_CASE("the attempts at a sample that ended with the same stack share one") {
  auto deaths = nlohmann::ordered_json::array();
  for (const std::uint32_t attempt : {1U, 2U, 3U}) {
    death_report d = killed_over(5, "");
    d.worker = attempt;
    d.attempt = attempt;
    d.last_output = attempt == 2 ? "no stack" : of_a_loader;
    deaths.push_back(telemetry::as_json(d));
  }
  const auto same = [](const std::vector<std::string>& frames) { return frames; };
  const auto stacks = cli::stacks_by_attempt(deaths, same, cli::frames_shown::of_user);
  REQUIRE(stacks.size() == 1);
  CHECK(stacks[0].at("attempts") == std::vector<std::string>{"1", "3"});
  CHECK(stacks[0].at("lines").size() == 5);
}

TEST_CASE("a stack shows its newest frame and those of the user's code, and counts the others between them") {
  death_report d = killed_over(5, "");
  d.reason.clear();
  d.signal = "SIGSEGV";
  d.stack = {"/lib/x86_64-linux-gnu/libc.so.6+0x1 in memcpy",
             "/lib/x86_64-linux-gnu/libc.so.6+0x2",
             "/home/me/words+0x3 in words::load(penstock::sample_request const&)",
             "/home/me/words+0x4",
             "/home/me/words+0x5 in penstock::loader::lease_runner::run()",
             "/home/me/words+0x6 in _ZN3caf4cut_",
             "/usr/lib/libcaf_core.so.0.17.6+0x7",
             "/usr/lib/libmine.so+0x8 in read"};
  const auto same = [](const std::vector<std::string>& frames) { return frames; };
  const auto death = telemetry::as_json(d);
  CHECK(cli::stack_lines(death, same, cli::frames_shown::of_user) ==
        std::vector<std::string>{d.stack[0], "(1 frame of penstock and system libraries)", d.stack[2], d.stack[3], "(3 frames of penstock and system libraries)", d.stack[7]});
  CHECK(cli::stack_lines(death, same, cli::frames_shown::all) == d.stack);
  d.stack = {"/opt/penstock-worker+0x1 in decode", "/opt/penstock-worker+0x2", "/lib/libc.so.6+0x3"};
  CHECK(cli::stack_lines(telemetry::as_json(d), same, cli::frames_shown::of_user) ==
        std::vector<std::string>{d.stack[0], "(2 frames of penstock and system libraries)"});
  d.stack.clear();
  CHECK(cli::stack_lines(telemetry::as_json(d), same, cli::frames_shown::of_user).empty());
}

TEST_CASE("without a width no line of the status is broken, and with one all are") {
  session_status s = status_with(std::nullopt);
  s.session = std::string(120, 's');
  s.gpu.name = std::string(120, 'g');
  const auto answer = telemetry::as_json(s);
  const std::string whole = cli::status_for_people(answer, {}, 0);
  CHECK(whole.find(s.session) != std::string::npos);
  CHECK(whole.find(s.gpu.name) != std::string::npos);
  CHECK(cli::status_for_people(answer, {}, 80).find(s.session) == std::string::npos);
}

TEST_CASE(
    "on 80 columns the last death is readable, whether or not the sacrificial worker is needed") {
  auto answer = telemetry::as_json(pool_status());
  answer.erase("jobs");
  auto& workers = answer.at("workers");
  workers[0]["last_death"]["sample"] = 1'234'567;
  workers[0]["last_death"].erase("job");
  workers[0]["restarts"] = 12;
  workers[0]["samples"] = 12'345;
  workers[0]["rss_bytes"] = 123'000'000;
  auto sacrificial = workers[0];
  sacrificial["id"] = 64;
  sacrificial["sacrificial"] = true;
  workers.push_back(sacrificial);
  SECTION("it runs") {
    const std::string text = cli::status_for_people(answer, {}, 80);
    INFO(text);
    CHECK(text.find("\nworker/64* ") != std::string::npos);
    CHECK(text.find("\n* the sacrificial worker") != std::string::npos);
    CHECK(text.find("SIGSEGV on 1234567\n") != std::string::npos);
  }
  SECTION("it is not needed") {
    workers[1]["state"] = "stopped";
    workers[1]["why_stopped"] = "not needed";
    const std::string text = cli::status_for_people(answer, {}, 80);
    INFO(text);
    CHECK(text.find("worker/64") == std::string::npos);
    CHECK(text.find("SIGSEGV on 1234567\n") != std::string::npos);
    cli::target one;
    one.kind = cli::target_kind::worker;
    one.worker = 64;
    workers.erase(0);
    CHECK(cli::status_for_people(answer, one, 80).find("worker/64*  stopped (not needed)") !=
          std::string::npos);
  }
}

TEST_CASE("a run whose bad samples were omitted reaches 100 %") {
  session_status s = status_with(std::nullopt);
  s.samples_expected = s.samples_done = 100;
  s.samples_delivered = 90;
  s.failed = 10;
  CHECK(telemetry::as_json(s).at("progress") == 1);
}

TEST_CASE("the status of a rank says how its previous process ended, and that of a group names all lost ones") {
  session_status s = status_with(std::nullopt);
  s.group.emplace();
  s.group->group = "job/photos";
  s.group->rank = 1;
  s.group->world_size = 2;
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find("started again") == std::string::npos);
  const std::chrono::system_clock::time_point time{std::chrono::seconds(1'764'300'000)};
  s.group->lost = {{1, 17, "SIGSEGV", time}, {0, 18, "SIGKILL", time}};
  const auto status = telemetry::as_json(s);
  CHECK(cli::status_for_people(status, {}, 0).find("\nstarted again 1 time: the previous process (pid 17) was lost at 11-28 03:20:00 UTC: SIGSEGV\n") != std::string::npos);
  const nlohmann::ordered_json group{{"group", "photos"}, {"ranks", nlohmann::ordered_json::array({{{"rank", 0}, {"status", nullptr}}, {{"rank", 1}, {"status", status}}})}};
  CHECK(cli::group_for_people(group, 0).find("\nlost at 11-28 03:20:00 UTC: rank 1 (pid 17): SIGSEGV\nlost at 11-28 03:20:00 UTC: rank 0 (pid 18): SIGKILL\n") !=
        std::string::npos);
}

TEST_CASE("the progress of a resumed run is that of the whole stream") {
  session_status s = status_with(std::nullopt);
  s.samples_before = 3184;
  s.samples_expected = 2816;
  s.samples_delivered = s.samples_done = 384;
  const auto status = telemetry::as_json(s);
  CHECK(status.at("progress") == 0.5946);
  CHECK(cli::percent_of(status) == "59 %");
  CHECK(cli::status_for_people(status, {}, 0).find("384 samples delivered, 3184 before this run") != std::string::npos);
}

TEST_CASE("a percentage is not rounded down because its share is inexact in binary") {
  CHECK(cli::percent_of({{"progress", 0.29}}) == "29 %");
  CHECK(cli::percent_of({{"progress", 0.2999}}) == "29 %");
}

TEST_CASE("a stalled pool says so in its status") {
  session_status s = pool_status();
  CHECK(cli::hint_after_status(telemetry::as_json(s)) == "penstock logs worker/1 --previous");
  s.stalled = stall_report{stall_kind::worker, "waiting for worker/1, which is starting", 8.4, 1};
  CHECK(cli::hint_after_status(telemetry::as_json(s)) == "penstock why");
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 200)
            .find("\nstalled for 8 s, waiting for worker/1, which is starting\n") != std::string::npos);
  s.stalled = stall_report{stall_kind::gpu_owner, "waiting for the GPU owner (pid 17), whose process is suspended", 8.4, std::nullopt};
  CHECK(cli::hint_after_status(telemetry::as_json(s)) == "penstock describe gpu");
}

TEST_CASE("a session's age is rounded alike in status and in the list of sessions, and a remaining time up") {
  session_status s = status_with(std::nullopt);
  s.uptime_seconds = 4.9;
  s.eta_seconds = 4.1;
  const std::string text = cli::status_for_people(telemetry::as_json(s), {}, 0);
  INFO(text);
  CHECK(text.find("up for " + cli::age_in_words(4.9)) != std::string::npos);
  CHECK(cli::age_in_words(4.9) == "4 s");
  CHECK(cli::age_in_words(0.9) == "0 s");
  CHECK(text.find("5 s left") != std::string::npos);
}

TEST_CASE("of a remaining time below a second no figure is shown") {
  session_status s = status_with(std::nullopt);
  s.eta_seconds = 0.03;
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find("less than 1 s left") != std::string::npos);
  s.eta_seconds = 1.1;
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find("2 s left") != std::string::npos);
}

TEST_CASE("a table with a worker that was replaced says that its samples are those of the latest process") {
  session_status s = status_with(std::nullopt);
  worker_status w;
  w.state = child_state::ready;
  s.workers = {w};
  const std::string note = "\nsamples: those of each worker's latest process\n";
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find(note) == std::string::npos);
  s.workers[0].incarnation = 2;
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find(note) != std::string::npos);
}

TEST_CASE("the description of a loader says what it waits for, and what its program holds if that is anything") {
  session_status s = status_with(std::nullopt);
  s.jobs.emplace();
  s.jobs->of_batches = true;
  const auto described = [&] { return cli::description_for_people(cli::description_of({{"status", telemetry::as_json(s)}, {"waits_for", "the consumer"}}, {}), 0); };
  CHECK(described().find("  the loader waits  for the consumer\n") != std::string::npos);
  CHECK(described().find("still holds") == std::string::npos);
  s.jobs->result_bytes = 4096;
  CHECK(described().find("4.00 KiB of batches that the program still holds\n") != std::string::npos);
}

TEST_CASE("a frame's line shows no discriminator") {
  CHECK(cli::without_discriminator("abort.c:79 (discriminator 21)") == "abort.c:79");
  CHECK(cli::without_discriminator("abort.c:79") == "abort.c:79");
}

TEST_CASE("rate and remaining time are shown only while the stream makes progress") {
  session_status s = status_with(std::nullopt);
  s.rate = 62;
  s.eta_seconds = 314;
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 200).find("62 samples/s  5 m 14 s left") != std::string::npos);
  s.stalled = stall_report{stall_kind::gpu_owner, "waiting for the GPU owner", 8.4, std::nullopt};
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 200).find("samples/s") == std::string::npos);
  CHECK_FALSE(cli::seconds_left(telemetry::as_json(s)));
}

TEST_CASE("a paused stream has no rate and no remaining time") {
  session_status s = status_with(std::nullopt);
  s.rate = 1048;
  s.eta_seconds = 19'080;
  s.state = session_state::paused;
  const std::string text = cli::status_for_people(telemetry::as_json(s), {}, 200);
  CHECK(text.find("samples/s") == std::string::npos);
  CHECK(text.find(" left") == std::string::npos);
}

TEST_CASE("commands recommended by why name the session if the why command did") {
  const nlohmann::ordered_json why{{"state", "ok"},
                                   {"verdict", "Nothing moves; see `penstock doctor`."},
                                   {"more", {"`penstock describe worker/3` shows it; `penstock restart worker/3 --now` ends it."}},
                                   {"stalled", {{"text", "waiting"}}}};
  CHECK(cli::why_for_people(why, 0, " --session photos") ==
        "Nothing moves; see `penstock doctor`.\n  `penstock describe worker/3 --session photos` shows it; "
        "`penstock restart worker/3 --now --session photos` ends it.\n");
}

TEST_CASE("a session that has ended says so while its program still holds it") {
  session_status s;
  s.pid = 4711;
  s.state = session_state::ok;
  s.outcome = run_outcome::finished;
  auto status = telemetry::as_json(s);
  const std::string held = "\nfinished: everything is delivered; the session stays open until the program (pid 4711) closes it\n";
  CHECK(cli::status_for_people(status, {}, 200).find(held) != std::string::npos);
  status["state"] = "ended";
  CHECK(cli::status_for_people(status, {}, 200).find(held) == std::string::npos);
}

namespace {

nlohmann::ordered_json why_of_two_workers() {
  return {{"state", "ok"},
          {"seconds", 10},
          {"verdict", "Decoding limits you."},
          {"more", {"`penstock scale 16` tries more workers on the running session, until all cores are busy."}},
          {"limits", {{"decode", 0.9}}},
          {"batches_per_second", 1234.4},
          {"workers",
           {{"ready", 2}, {"busy", 0.97}, {"cpu", 0.09}, {"core_wait", 0.8},
            {"each", nlohmann::ordered_json::array({{{"worker", 0}, {"seconds_a_sample", 1.3104}, {"reading", 0.5}},
                                                    {{"worker", 1}, {"seconds_a_sample", 0.00123}, {"reading", 0.5}}})}}}};
}

}  // namespace

TEST_CASE("why reports the stall at the end of an ended session once, and names no command for a live one") {
  auto why = why_of_two_workers();
  why["state"] = "ended";
  why["more"].push_back("Cores were idle. `penstock scale 16` tries it. Fewer slots would do.");
  why["now"] = {{"seconds", 3.2}, {"waits_for", "worker/1"}, {"worker", 1}, {"verdict_after_seconds", 5}};
  std::string text = cli::why_for_people(why, 0);
  CHECK(text.starts_with("Decoding limits you.\n  Cores were idle. Fewer slots would do.\n"));
  why["verdict"] = "No progress for 34 s: waiting for worker/0.";
  why["more"] = nlohmann::ordered_json::array({"`penstock restart worker/0 --now` kills it at once."});
  why["stalled"] = {{"text", "waiting for worker/0; it hung before, 1 time; restarting a worker does not help; more"}, {"seconds", 34.2}};
  text = cli::why_for_people(why, 0);
  CHECK(text.starts_with("It was stalled at its end: no progress for 34 s, waiting for worker/0; it hung before, 1 time.\n"));
  CHECK(text.find("No progress") == std::string::npos);
  CHECK(text.find("`penstock") == std::string::npos);
  CHECK(text.find("OF THE LAST 10 s") != std::string::npos);
  CHECK(cli::stall_for_people(why) == "34 s, waiting for worker/0; it hung before, 1 time");
}

TEST_CASE("why prints times and rates as plain numbers") {
  const std::string text = cli::why_for_people(why_of_two_workers(), 0);
  CHECK(text.find("worker/0: 1310 ms a sample") != std::string::npos);
  CHECK(text.find("worker/1: 1.23 ms a sample") != std::string::npos);
  CHECK(text.find("batches: 1234 a second") != std::string::npos);
  CHECK(text.find("They spent 9 % of their time running on a core, 80 % waiting for a core, 8 % waiting for something else (storage, a lock, "
                  "another process), and 3 % idle") != std::string::npos);
}

TEST_CASE("the table of why covers the same time as its sentence, and names reads only if they are timed") {
  auto why = why_of_two_workers();
  why["limits"] = {{"start", 0.6}, {"decode", 0.4}};
  why["beginning"] = 0.5;
  why["limits_after_beginning"] = {{"start", 0.1}, {"decode", 0.8}};
  why["workers"]["each"][0]["reading"] = 0;
  const std::string text = cli::why_for_people(why, 0);
  INFO(text);
  CHECK(text.find("OF THE LAST 5 s") != std::string::npos);
  CHECK(text.find("80 %") != std::string::npos);
  CHECK(text.find("60 %") == std::string::npos);
  CHECK(text.find("worker/0: 1310 ms a sample\n") != std::string::npos);
  CHECK(text.find("worker/1: 1.23 ms a sample, 50 % of it in reads") != std::string::npos);
}

TEST_CASE("for a pool the table of why has no row for storage") {
  auto why = why_of_two_workers();
  why["of"] = "jobs";
  const std::string text = cli::why_for_people(why, 0);
  INFO(text);
  CHECK(text.find("storage  ") == std::string::npos);
  CHECK(text.find("jobs ran, or waited for something") != std::string::npos);
}

TEST_CASE("on a narrow terminal why breaks its lines without cutting any") {
  std::string whole = cli::why_for_people(why_of_two_workers(), 0);
  for (const std::size_t width : {std::size_t{64}, std::size_t{90}}) {
    const std::string text = cli::why_for_people(why_of_two_workers(), width);
    INFO(text);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= width);
    CHECK(text.find("..") == std::string::npos);
    std::istringstream words(whole);
    for (std::string word; words >> word;) CHECK(text.find(word) != std::string::npos);
  }
}

TEST_CASE("the line of the GPU says how its last process ended") {
  session_status s;
  s.gpu_state = child_state::ready;
  s.gpu_restarts = 1;
  owner_death_report died;
  died.cause = death_cause::heartbeat;
  died.signal = "SIGABRT";
  died.reason = "no heartbeat for 10 s (suspended)";
  s.last_owner_death = died;
  const std::string text = cli::status_for_people(telemetry::as_json(s), {}, 200);
  CHECK(text.find("  1 restart  last death heartbeat: no heartbeat for 10 s (suspended)\n") != std::string::npos);
}

TEST_CASE("a worker about to be restarted shows no time") {
  worker_status w;
  w.state = child_state::backoff;
  w.next_restart_seconds = 0;
  session_status s;
  s.workers = {w};
  const std::string text = cli::status_for_people(telemetry::as_json(s), {}, 200);
  CHECK(text.find("backoff") != std::string::npos);
  CHECK(text.find("0.0 s") == std::string::npos);
}

TEST_CASE("a death without a known sample shows none in the list") {
  death_report died;
  died.cause = death_cause::heartbeat;
  died.phase = work_phase::loading;
  const auto deaths = nlohmann::ordered_json::array({telemetry::as_json(died)});
  CHECK(cli::deaths_for_people(deaths, work_kind::samples, 200).find("loading") == std::string::npos);
}

TEST_CASE("Python's frames are found in a worker's last output, and the interpreter's native ones are left out") {
  const std::string output = "loading\nStack (most recent call first):\n  File \"/usr/lib/in out.py\", line 7 in string_at\n  File \"data.py\", line 12 in read\n  ...\n";
  CHECK(cli::python_frames_in(output) == std::vector<std::string>{"string_at at /usr/lib/in out.py:7", "read at data.py:12"});
  CHECK(cli::python_frames_in("File \"data.py\", line 12 in read").empty());
  CHECK(cli::python_frames_in("").empty());
  const std::string crashed = "/lib/libc.so.6+0x1 in strlen";
  const std::string interpreter = "/usr/bin/python3.11+0x2";
  CHECK(cli::frames_before_interpreter({crashed, interpreter, crashed}) == std::vector<std::string>{crashed});
  CHECK(cli::frames_before_interpreter({crashed, "/lib/libpython3.12.so.1.0+0x3"}) == std::vector<std::string>{crashed});
  CHECK(cli::frames_before_interpreter({crashed}) == std::vector<std::string>{crashed});
  CHECK(cli::frames_before_interpreter({}).empty());
}

TEST_CASE("all frames of a Python stack include the interpreter's native ones") {
  death_report d = killed_over(5, "");
  d.last_output = of_a_loader;
  d.stack = {"/lib/libc.so.6+0x1 in strlen", "/usr/bin/python3.11+0x2"};
  const auto same = [](const std::vector<std::string>& frames) { return frames; };
  const auto has = [&](cli::frames_shown which, const std::string& line) {
    return std::ranges::count(cli::stack_lines(telemetry::as_json(d), same, which), line) == 1;
  };
  CHECK(has(cli::frames_shown::all, "in native code:"));
  CHECK(has(cli::frames_shown::all, "  /usr/bin/python3.11+0x2"));
  CHECK(has(cli::frames_shown::of_user, "in native code (--all-frames also shows the interpreter's frames):"));
  CHECK_FALSE(has(cli::frames_shown::of_user, "  /usr/bin/python3.11+0x2"));
}

TEST_CASE("the description of a worker has the stack of its death instead of the raw lines that it wrote") {
  session_status s = status_with(std::nullopt);
  worker_status w;
  w.id = 3;
  w.state = child_state::ready;
  w.last_death = killed_over(5, "");
  s.workers = {w};
  auto about = cli::description_of({{"status", telemetry::as_json(s)}, {"batches", nullptr}, {"waits_for", ""}}, worker_target(3));
  about["workers"][0]["output"] = {"reading shard 7", "penstock-stack: #0 /lib/libc.so.6+0x1 in memcpy"};
  about["workers"][0]["stack_lines"] = {"memcpy", "(2 frames of penstock and system libraries)"};
  const std::string text = cli::description_for_people(about, 0);
  INFO(text);
  CHECK(text.find("output            reading shard 7\n") != std::string::npos);
  CHECK(text.find("penstock-stack") == std::string::npos);
  CHECK(text.find("    stack           memcpy\n                    (2 frames of penstock and system libraries)\n") != std::string::npos);
}

TEST_CASE("the stack that Python wrote is in a worker's description once") {
  session_status s = status_with(std::nullopt);
  worker_status w;
  w.id = 3;
  w.state = child_state::ready;
  w.last_death = killed_over(5, "");
  w.last_death->last_output = of_a_loader;
  s.workers = {w};
  auto about = cli::description_of({{"status", telemetry::as_json(s)}, {"batches", nullptr}, {"waits_for", ""}}, worker_target(3));
  about["workers"][0]["output"] = {"reading shard 6", of_a_loader, "  File \"/a/b.py\", line 3, in f"};
  const auto times = [&about](std::string_view part) {
    const std::string text = cli::description_for_people(about, 0);
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
  };
  CHECK(times("Stack (most recent") == 1);  // `describe workers` shows no other stack
  CHECK(times("decode") == 1);
  about["workers"][0]["stack_lines"] = {"decode at /home/me/penstock/data.py:12"};
  CHECK(times("decode") == 1);
  CHECK(times("Stack (most recent") == 0);
  CHECK(times("reading shard") == 3);
  CHECK(times("line 3, in f") == 1);  // a traceback, not a stack
}

TEST_CASE("deaths have no path column if no sample has a path, and it does not repeat the number") {
  const auto table_of = [](const std::vector<death_report>& deaths) {
    auto listed = nlohmann::ordered_json::array();
    for (const death_report& d : deaths) listed.push_back(telemetry::as_json(d));
    return cli::deaths_for_people(listed, work_kind::samples, 0);
  };
  death_report d = killed_over(137, "sample 137");
  d.signal = "SIGSEGV";
  d.reason.clear();
  const std::string head = table_of({d}).substr(0, table_of({d}).find('\n'));
  CHECK(head.ends_with("  attempt"));
  CHECK(table_of({d}).find("sample 137") == std::string::npos);
  death_report sent = killed_over(5, "");
  sent.path.reset();
  CHECK(table_of({d, sent}).find("  attempt  why\n") != std::string::npos);
  CHECK(table_of({d, killed_over(5, "cats/tom.jpg")}).find("  attempt  path, or why\n") != std::string::npos);
}

TEST_CASE("status, deaths and describe use the same words for the cost of deaths") {
  using json = nlohmann::ordered_json;
  CHECK(cli::cost_of_deaths({{"quarantined", 0}, {"repeated", 3}, {"waited_seconds", 1.25}}, work_kind::samples) ==
        "deaths cost no sample; 3 batches were loaded again; the stream waited 1.25 s because of them");
  CHECK(cli::cost_of_deaths({{"quarantined", 0}, {"repeated", 8}, {"repetitions", 10}, {"waited_seconds", 0}}, work_kind::samples) ==
        "deaths cost no sample; 8 batches were loaded again, 10 times in all; the stream did not wait");
  CHECK(cli::cost_of_deaths({{"quarantined", 1}, {"repeated", 0}, {"waited_seconds", 0}}, work_kind::samples) ==
        "deaths cost 1 sample, which is quarantined; the stream did not wait");
  CHECK(cli::cost_of_deaths({{"quarantined", 2}, {"repeated", 1}, {"waited_seconds", nullptr}}, work_kind::jobs) ==
        "deaths cost 2 jobs, which are poisoned; 1 job was run again");
  CHECK(cli::cost_of_deaths({{"quarantined", 1}, {"lost", 7}, {"repeated", 2}, {"waited_seconds", nullptr}}, work_kind::batches) ==
        "deaths cost 1 sample, which is quarantined; 2 batches were loaded again");
  CHECK(cli::cost_of_deaths({{"quarantined", 0}, {"lost", 8}, {"repeated", 2}, {"waited_seconds", nullptr}}, work_kind::batches) ==
        "2 batches were loaded again");
  CHECK(cli::cost_of_deaths({{"quarantined", 0}, {"repeated", 2}, {"waited_seconds", 1.25}}, work_kind::batches) ==
        "deaths cost no sample; 2 batches were loaded again; the loop waited 1.25 s because of them");
  CHECK(cli::cost_of_deaths({{"quarantined", 0}, {"repeated", 2}, {"waited_seconds", 0}}, work_kind::batches) ==
        "deaths cost no sample; 2 batches were loaded again; the loop did not wait");
  CHECK(cli::losses_in_words({{"failed", 2}}) == "2 sample failures without a death (`penstock events`)");
  CHECK(cli::losses_in_words({{"failed", 1}, {"lost", 8}}) ==
        "8 samples were lost with batches that raised an exception; 1 sample failure without a death (`penstock events`)");
  CHECK(cli::losses_in_words({{"quarantined", 1}}).empty());  // an older version does not report the number of lost samples
  CHECK(cli::cost_of_deaths(json(), work_kind::samples).empty());  // a session of an older version
  session_status s = status_with(std::nullopt);
  s.workers_ended_unexpectedly = 1;
  s.deaths_cost = {.repeated = 3, .repetitions = 3, .waited_seconds = 1.25};
  const std::string cost = cli::cost_of_deaths(telemetry::as_json(s).at("deaths_cost"), work_kind::samples);
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find(cost + "\n") != std::string::npos);
  s.workers_ended_unexpectedly = 0;
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find("deaths cost") == std::string::npos);
  s.deaths_cost.lost = 1;
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find("1 sample was lost with batches that raised an exception") != std::string::npos);
  death_report d;
  d.held = 2;
  CHECK(cli::cost_of_death(telemetry::as_json(d), work_kind::samples) == "2 batches to load again");
  d.held_again = 1;
  CHECK(cli::cost_of_death(telemetry::as_json(d), work_kind::samples) == "2 batches to load again (1 of them had been lost before)");
  d.held_again = 2;
  CHECK(cli::cost_of_death(telemetry::as_json(d), work_kind::samples) == "2 batches to load again (all had been lost before)");
  d.held = d.held_again = 1;
  CHECK(cli::cost_of_death(telemetry::as_json(d), work_kind::samples) == "1 batch to load again (it had been lost before)");
  d.held = 0;
  CHECK(cli::cost_of_death(telemetry::as_json(d), work_kind::samples).empty());
}

TEST_CASE("status does not advise limiting the time of a job that its time limit ended") {
  session_status s;
  s.jobs.emplace();
  s.hung.push_back({"./job.sh", 501, {{0, 2, std::chrono::system_clock::time_point(std::chrono::hours(12)), true}}});
  s.workers.resize(1);
  s.workers[0].current_sample = "./job.sh (job 501)";
  const auto told = [&s] { return cli::hung_for_people(telemetry::as_json(s).at("hung").at(0), work_kind::jobs); };
  CHECK(told() == "job 501 (./job.sh) hung 1 time: in worker/0 at 12:00:00 after 2 s, its time limit");
  s.hung[0].hangs[0].timed_out = false;
  CHECK(told().find("a time limit does: [jobs] timeout") != std::string::npos);
}

TEST_CASE("status names a sample that has hung before, and so does describe for the worker that now has it") {
  session_status s = status_with(std::nullopt);
  s.hung.push_back({"cats/tom.jpg", {}, {{0, 40, std::chrono::system_clock::time_point(std::chrono::hours(12))}}});
  s.workers.resize(2);
  s.workers[1].id = 1;
  s.workers[1].current_sample = "cats/tom.jpg";
  const std::string words = "sample 'cats/tom.jpg' hung 1 time: in worker/0 at 12:00:00 after 40 s; restarting a worker does not help";
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find(words) != std::string::npos);
  nlohmann::ordered_json pipeline{{"status", telemetry::as_json(s)}, {"batches", {{"loading", 1}, {"loaded", 0}, {"uploading", 0}, {"ready", 0}, {"in_use", 0}}}, {"waits_for", "x"}};
  cli::target one;
  one.kind = cli::target_kind::worker;
  one.worker = 1;
  CHECK(cli::description_for_people(cli::description_of(pipeline, one), 0).find(words) != std::string::npos);
  one.worker = 0;
  CHECK(cli::description_for_people(cli::description_of(pipeline, one), 0).find("hung") == std::string::npos);
  s.stalled = stall_report{stall_kind::sample, "waiting for worker/1; it hung before", 6, 1, "", 1};
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find(words) == std::string::npos);  // the stall already reports the hang
}

TEST_CASE("status and describe say that a worker drains because it is over its memory limit, and what it was loading") {
  session_status s = loader_status();
  s.workers[0].state = child_state::draining;
  s.workers[0].over_memory = memory_excess{1178ULL << 20U, 600ULL << 20U, "sample 40 (job 31)", {}};
  const auto status = telemetry::as_json(s);
  CHECK(status["workers"][0]["over_memory"]["sample"] == 40);
  CHECK(status["workers"][0]["current_sample"] == "sample 37");  // users of a data loader know no jobs
  CHECK(cli::status_for_people(status, {}, 0).find("  draining (over the memory limit)  ") != std::string::npos);
  nlohmann::ordered_json pipeline{{"status", status}, {"batches", {{"loading", 1}, {"loaded", 0}, {"uploading", 0}, {"ready", 0}, {"in_use", 0}}}, {"waits_for", "x"}};
  cli::target one;
  one.kind = cli::target_kind::worker;
  one.worker = 1;
  const std::string about = cli::description_for_people(cli::description_of(pipeline, one), 0);
  CHECK(about.find("is replaced after its current batch: it used 1.15 GiB of private memory, but [loader.limits] memory allows 600 MiB; it was loading "
                   "sample 40 when that was noticed") != std::string::npos);
  CHECK(about.find("sample 37 hung 1 time") != std::string::npos);
}

TEST_CASE("the list of deaths says what a worker over its memory limit was loading") {
  death_report d;
  d.cause = death_cause::memory;
  d.sample = 40;
  d.work = "sample 40";
  d.job = 31;
  d.reason = "it used 1.15 GiB of private memory, but [loader.limits] memory allows 600 MiB";
  CHECK(cli::deaths_for_people(nlohmann::ordered_json::array({telemetry::as_json(d)}), work_kind::batches, 0).find("was loading sample 40; it used 1.15 GiB of") !=
        std::string::npos);
}

TEST_CASE("status gives advice about a sample that hung before only while a worker tries it again") {
  session_status s = status_with(std::nullopt);
  s.hung.push_back({"cats/tom.jpg", {}, {{0, 40, std::chrono::system_clock::time_point(std::chrono::hours(12))}}});
  const auto told = [&s] { return cli::status_for_people(telemetry::as_json(s), {}, 0); };
  CHECK(told().find("hung 1 time: in worker/0 at 12:00:00 after 40 s\n") != std::string::npos);  // as after its quarantine
  s.workers.resize(1);
  s.workers[0].current_sample = "cats/tom.jpg";
  CHECK(told().find("after 40 s; restarting a worker does not help") != std::string::npos);
  s.state = session_state::stopping;
  CHECK(told().find("after 40 s\n") != std::string::npos);
  s.state = session_state::ok;
  auto record = telemetry::as_json(s);  // of a session that was killed
  record["state"] = "ended";
  CHECK(cli::status_for_people(record, {}, 0).find("after 40 s\n") != std::string::npos);
  s.outcome = run_outcome::finished;
  CHECK(told().find("after 40 s\n") != std::string::npos);
}

TEST_CASE("the description of the scheduler says that the stream is stalled, on what and for how long") {
  for (const bool pool : {false, true}) {
    session_status s = pool ? loader_status() : status_with(std::nullopt);
    s.state = session_state::ok;
    const nlohmann::ordered_json batches{{"loading", 1}, {"loaded", 0}, {"uploading", 0}, {"ready", 0}, {"in_use", 0}};
    const auto described = [&] { return cli::description_for_people(cli::description_of({{"status", telemetry::as_json(s)}, {"batches", batches}, {"waits_for", "x"}}, {}), 0); };
    CHECK(described().find("stalled") == std::string::npos);
    s.stalled = stall_report{stall_kind::sample, "waiting for worker/1, which has been loading sample 7 for 34 s", 34, 1};
    CHECK(described().find("  state             ok, stalled\n  stalled for       34 s, waiting for worker/1, which has been loading sample 7 for 34 s\n") != std::string::npos);
  }
}

TEST_CASE("status and why say who paused a session, and how long a stop has lasted") {
  for (session_status s : {status_with(std::nullopt), loader_status()}) {
    s.state = session_state::paused;
    auto status = telemetry::as_json(s);
    status["paused_by"] = "`penstock headroom`, for its own measurement";
    CHECK(cli::status_for_people(status, {}, 0).find("\npaused by `penstock headroom`, for its own measurement\n") != std::string::npos);
    status["state"] = "stopping";
    status["paused_by"] = nullptr;
    status["stopping_seconds"] = 12.3;
    CHECK(cli::status_for_people(status, {}, 0).find("  stopping for 12 s  pid") != std::string::npos);
  }
  auto why = why_of_two_workers();
  why["state"] = "paused";
  why["paused_by"] = "`penstock pause`";
  CHECK(cli::why_for_people(why, 0, " --session a") == "An operator has paused the session.\n  `penstock resume --session a` ends the pause.\n");
  why["of"] = "batches";
  CHECK(cli::why_for_people(why, 0).starts_with("An operator has paused the loader.\n"));
  why["of"] = "samples";
  for (const pauser one : {pauser::program, pauser::headroom, pauser::group}) CHECK(pauser_of(words_of(one)) == one);
  why["paused_by"] = "a part of a later version";
  CHECK(cli::why_for_people(why, 0).starts_with("The session was paused by a part of a later version.\n"));
  why["paused_by"] = "the program";
  CHECK(cli::why_for_people(why, 0) == "The session was paused by the program.\n  `penstock resume` would end the pause, too.\n");
  session_status s = status_with(std::nullopt);
  s.state = session_state::paused;
  CHECK(cli::hint_after_status(telemetry::as_json(s)) == "penstock resume");
  auto status = telemetry::as_json(s);
  status["paused_by"] = "the program";
  CHECK(cli::hint_after_status(status).empty());
}

TEST_CASE("status says how to list quarantined samples") {
  session_status s = status_with(std::nullopt);
  s.quarantined = 1;
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find("1 sample quarantined (`penstock quarantine list`)") != std::string::npos);
  s.quarantined = 0;
  s.failed = 1;
  CHECK(cli::status_for_people(telemetry::as_json(s), {}, 0).find("quarantine list") == std::string::npos);
}

TEST_CASE("the hint after status names the process that delays a stop, and otherwise the last death of any worker") {
  session_status s = pool_status();
  auto status = telemetry::as_json(s);
  status["state"] = "stopping";
  status["stopping"] = {{{"target", "worker/64"}, {"text", "worker/64 (pid 7), which has not exited yet"}}};
  CHECK(cli::hint_after_status(status) == "penstock describe worker/64");
  status["stopping"][0]["target"] = "program";
  CHECK(cli::hint_after_status(status).empty());
  s = status_with(std::nullopt);
  s.workers.resize(2);
  for (std::uint32_t id = 0; id < 2; ++id) {
    s.workers[id].id = id;
    death_report d;
    d.worker = id;
    d.cause = death_cause::signal;
    d.signal = "SIGKILL";
    d.time = std::chrono::system_clock::time_point(std::chrono::hours(12 + id));
    s.workers[id].last_death = d;
  }
  CHECK(cli::hint_after_status(telemetry::as_json(s)) == "penstock describe worker/1");
  s.workers[1].last_death->signal = "SIGSEGV";
  s.workers[1].last_death->stack = {"libjpeg.so+0x17"};
  CHECK(cli::hint_after_status(telemetry::as_json(s)) == "penstock deaths --stacks");
}

TEST_CASE("requested restarts and drains are listed as ordered and not counted, but a process killed at a stop is a death") {
  death_report asked;
  asked.cause = death_cause::stopped;
  death_report late = asked;
  late.ignored_stop_seconds = 10;
  death_report crashed;
  crashed.cause = death_cause::signal;
  const nlohmann::ordered_json all{telemetry::as_json(asked), telemetry::as_json(late), telemetry::as_json(crashed), telemetry::as_json(crashed)};
  CHECK(cli::deaths_by_cause(all) == nlohmann::ordered_json{{"stopped", 1}, {"signal", 2}});
  const std::string listed = cli::deaths_for_people(cli::all_deaths({{"deaths", all}}), work_kind::batches, 0);
  CHECK(std::ranges::count(listed, '\n') == 5);
  CHECK(listed.find("  stopped (ordered)  ") != std::string::npos);
  CHECK(listed.find("  killed at stop  ") != std::string::npos);
  CHECK(cli::hint_after_deaths(nlohmann::ordered_json::array({all[3], all[0]})) == cli::look_into(all[3]));
  CHECK(cli::hint_after_deaths(nlohmann::ordered_json::array({all[0]})).empty());
  CHECK(cli::is_unexpected_death(all[2]));
  CHECK_FALSE(cli::is_unexpected_death(all[0]));
  CHECK(all[0].at("on_request") == true);
  CHECK(all[1].at("on_request") == false);
  CHECK(all[2].at("on_request") == false);
}

TEST_CASE("a worker that was lost with its host is reported as such") {
  death_report lost;
  lost.cause = death_cause::host;
  CHECK(cli::ending_of(telemetry::as_json(lost)) == "lost with its host");
}

TEST_CASE("a data loader shows the progress of its pass and when that will end") {
  session_status s = status_with(std::nullopt);
  s.jobs.emplace();
  s.jobs->of_batches = true;
  s.epoch = 2;
  s.batches_delivered = 75;
  s.batches_done = 11;
  s.batches_expected = 30;
  s.rate = 2;
  s.eta_seconds = 9.5;
  const auto status = telemetry::as_json(s);
  CHECK(status.at("progress") == 0.3666);
  const std::string text = cli::status_for_people(status, {}, 0);
  CHECK(text.find("36 % of epoch 2  2 batches/s  10 s left in it") != std::string::npos);
  CHECK(cli::progress_of_jobs(status) == "75 batches, 36 % of epoch 2");
}

TEST_CASE("the position of a session names a total only if there is one") {
  session_status s = status_with(std::nullopt);
  s.epoch = 5;
  s.samples_delivered = 20464;
  CHECK(cli::position_of(telemetry::as_json(s)) == "epoch 5, 20464 samples delivered");
  s.samples_expected = 100000;
  CHECK(cli::position_of(telemetry::as_json(s)) == "epoch 5, 20464 of 100000 samples delivered");
  s.samples_expected = 0;
  s.jobs.emplace();
  CHECK(cli::position_of(telemetry::as_json(s)) == "0 of 0 jobs");
  s.jobs->of_batches = true;
  s.batches_delivered = 4;
  CHECK(cli::position_of(telemetry::as_json(s)) == "4 batches, epoch 5");
  s.batches_done = 4;
  s.batches_expected = 10;
  CHECK(cli::position_of(telemetry::as_json(s)) == "4 batches, 40 % of epoch 5");
}

TEST_CASE("why names what is awaited now, and when that becomes a stall") {
  nlohmann::ordered_json why = why_of_two_workers();
  why["now"] = {{"seconds", 3.2}, {"waits_for", "worker/1, which has been loading sample 37 for 3.2 s"}, {"worker", 1}, {"verdict_after_seconds", 5}};
  CHECK(cli::why_for_people(why, 0).find("The consumer has been waiting 3.2 s for its next batch: for worker/1, which has been loading sample 37 for 3.2 s. "
                                         "After 5 s without progress this is a stall") == 0);
  why["now"] = nullptr;
  CHECK(cli::why_for_people(why, 0).starts_with("Decoding limits you."));
  why["of"] = "batches";
  const std::string text = cli::why_for_people(why, 0);
  CHECK(text.find("the dataset worked on samples") != std::string::npos);
  CHECK(text.find("ms a batch") != std::string::npos);
  CHECK(text.find("job") == std::string::npos);
}
