// The screen of `penstock top`, from made-up answers of a session.
#include "tools/penstock/watch/top_screen.hpp"

#include "tools/penstock/watch/event_times.hpp"
#include "tools/penstock/watch/latest_event.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <string>

using namespace penstock::cli;
using json = nlohmann::ordered_json;

namespace {

json look(std::int64_t seconds, std::uint64_t samples, std::size_t workers,
          std::optional<std::uint32_t> waits_for = std::nullopt) {
  json all = json::array();
  for (std::size_t i = 0; i < workers; ++i) {
    all.push_back({{"id", i},
                   {"pid", 100 + i},
                   {"state", "ready"},
                   {"incarnation", 1},
                   {"restarts", 0},
                   {"samples", samples},
                   {"rss_bytes", 1},
                   {"current_sample", nullptr},
                   {"current_sample_seconds", nullptr},
                   {"last_death", nullptr},
                   {"next_restart_seconds", nullptr}});
  }
  return {{"status",
           {{"session", "s"},
            {"state", "ok"},
            {"pid", 1},
            {"epoch", 0},
            {"samples_delivered", samples},
            {"samples_done", samples},
            {"samples_expected", 100000},
            {"batches_delivered", samples},
            {"bytes_uploaded", samples},
            {"failed", 0},
            {"quarantined", 0},
            {"gpu", {{"state", "ready"}, {"name", "host"}}},
            {"workers", all}}},
          {"batches", {{"loading", 0}, {"loaded", 0}, {"uploading", 0}, {"ready", 0}, {"in_use", 0}}},
          {"waits_for", waits_for ? "worker/" + std::to_string(*waits_for) + ", which is ready" : "nobody"},
          {"waits_for_worker", waits_for ? json(*waits_for) : json()},
          {"device_waited_seconds", 0.0},
          {"now_ns", seconds * 1'000'000'000}};
}

std::vector<std::string> workers_of(const std::vector<std::string>& screen) {
  std::vector<std::string> names;
  for (const std::string& line : screen) {
    if (line.starts_with("worker/")) names.push_back(line.substr(0, line.find(' ')));
  }
  return names;
}

bool has(const std::vector<std::string>& screen, const std::string& text) {
  return std::ranges::any_of(screen,
                             [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("the rate is that of the last seconds, next to the mean of ten seconds") {
  const json then = look(0, 0, 1);
  const json lately = look(7, 700, 1);
  const json now = look(10, 2200, 1);
  const auto screen = top_screen({then, lately, now}, "", {100, 24}, 0, false);
  CHECK(has(screen, "500 samples/s"));
  CHECK(has(screen, "(mean of 10 s: 220)"));
}

TEST_CASE("a single screen shows the rates of the status, because a poll spans no time") {
  json then = look(100, 3200, 1);
  then.at("status").update({{"rate", 102.4}, {"uptime_seconds", 100}, {"batches_delivered", 200}, {"bytes_uploaded", 320'000}});
  const auto screen = top_screen({then, then, then}, "", {100, 24}, 0, false);
  CHECK(has(screen, "102 samples/s  6.4 batches/s  10.0 KiB/s  (mean of 10 s: 102)"));
  then.at("status")["rate"] = nullptr;  // the session has just begun
  CHECK(has(top_screen({then, then, then}, "", {100, 24}, 0, false), "- samples/s  - batches/s  -/s"));
}

TEST_CASE("a single screen shows the rates of workers that add up to that of the stream, and none that are unknown") {
  json now = look(100, 3200, 3);
  now.at("status").update({{"rate", 100.0}, {"uptime_seconds", 100}});
  now.at("status").at("workers")[0]["rate"] = 60.0;
  now.at("status").at("workers")[1]["rate"] = 40.0;
  now.at("status").at("workers")[2]["rate"] = nullptr;  // the worker has just been added
  const auto screen = top_screen({now, now, now}, "", {100, 24}, 0, false);
  CHECK(has(screen, "worker/0  ready  100         0       60.0 "));
  CHECK(has(screen, "worker/1  ready  101         0       40.0 "));
  CHECK(has(screen, "worker/2  ready  102         0          - "));
}

TEST_CASE("top says once for how much of the time the consumer waited, whatever its own polls or the beginning of the run say") {
  json then = look(95, 3200, 1);
  json now = look(100, 3200, 1);
  now["waited"] = 0.35;
  now["device_waited_seconds"] = 4.9;
  now.at("status")["limits"] = {{"storage", 0.1}, {"decode", 0.2}, {"order", 0}, {"wire", 0}, {"convert", 0}, {"consumer", 0.2}, {"start", 0.5}};
  for (const json& before : {then, now}) {
    CHECK(has(top_screen({before, before, now}, "", {100, 24}, 0, false), "the consumer waited 35 % of the time"));
  }
  now["waited"] = nullptr;
  CHECK_FALSE(has(top_screen({then, then, now}, "", {100, 24}, 0, false), "the consumer waited"));
}

TEST_CASE("the latest event has its age, and a death is not hidden by its replacement") {
  latest_event events;
  const auto time = [](const char* seconds) { return std::string("2026-11-28T11:20:") + seconds; };
  const auto now = *time_of_utc(time("58.5Z"));
  CHECK(events.in_words(now).empty());
  const std::string died = "worker 0 (pid 17) ended: SIGKILL, while loading sample 603769";
  events.hear({{"kind", "worker_died"}, {"time", time("46.138Z")}, {"text", died}});
  for (const char* const kind : {"worker_restarted", "worker_ready", "batch_recovered", "epoch_done"})
    events.hear({{"kind", kind}, {"time", time("47Z")}, {"text", "later"}});
  CHECK(events.in_words(now) == "event    12 s ago: " + died);

  events.hear({{"kind", "paused"}, {"time", time("57.9Z")}, {"text", "no new work is handed out"}});
  CHECK(events.in_words(now) == "event    1 s ago: no new work is handed out");
}

TEST_CASE("the latest event is shown to its end if lines are free, and cut if workers need them") {
  const std::string event = "event    12 s ago: worker 0 (pid 17) ended: SIGKILL (sent by another process or by its own code), while loading sample 7";
  const json one = look(10, 0, 1);
  const auto screen = top_screen({one, one, one}, event, {80, 24}, 0, false);
  REQUIRE(screen.size() == 24);
  CHECK(screen[21].starts_with("event    12 s ago: worker 0"));
  CHECK(screen[22].ends_with("while loading sample 7"));
  const json many = look(10, 0, 40);
  const auto full = top_screen({many, many, many}, event, {80, 24}, 0, false);
  REQUIRE(full.size() == 24);
  CHECK((full[22].starts_with("event    12 s ago: worker 0") && full[22].ends_with("..")));
}

TEST_CASE("a paused stream does not count as one whose consumer waits") {
  const json then = look(0, 100, 1);
  json now = look(10, 100, 1);
  now["waited"] = 1.0;
  CHECK(has(top_screen({then, then, now}, "", {100, 24}, 0, false), "the consumer waited 100 % of the time"));
  now.at("status")["state"] = "paused";
  const auto screen = top_screen({then, then, now}, "", {100, 24}, 0, false);
  CHECK(has(screen, "the stream is paused"));
  CHECK_FALSE(has(screen, "the consumer waited"));
}

TEST_CASE("top shows what limits a running session, in the words of `why`") {
  json now = look(10, 100, 1);
  now.at("status")["verdict"] = "Decoding limits you: 2 workers used a core for 98 % of their time.";
  const auto shows = [&] { return has(top_screen({now, now, now}, "", {80, 24}, 0, false), "limit    Decoding limits you: 2 workers"); };
  CHECK(shows());
  for (const char* const state : {"paused", "stopping"}) {
    now.at("status")["state"] = state;
    CHECK_FALSE(shows());
  }
  now.at("status")["state"] = "ok";
  now.at("status")["stalled"] = {{"seconds", 8}, {"text", "waiting for worker/1"}, {"worker", 1}, {"kind", "sample"}};
  CHECK_FALSE(shows());  // the line above says what the stream waits for
}

TEST_CASE("a long limit is wrapped on any screen that leaves half of its lines to the workers") {
  const std::string verdict = "Decoding limits you: 2 workers used a core for 98 % of their time. Use more workers, or do less work for each sample.";
  for (const std::size_t columns : {60U, 110U}) {
    json now = look(10, 100, 40);
    now.at("status")["verdict"] = verdict;
    const auto screen = top_screen({now, now, now}, "", {columns, 24}, 0, false);
    CHECK(screen.size() == 24);
    CHECK(has(screen, "for each sample."));
    CHECK(workers_of(screen).size() == rows_for_workers({columns, 24}, more_lines(now, {columns, 24})));
    CHECK(workers_of(top_screen({now, now, now}, "", {columns, 24}, 1000, false)).back() == "worker/39");
  }
  json now = look(10, 100, 40);
  now.at("status")["verdict"] = verdict;
  const auto low = top_screen({now, now, now}, "", {60, 16}, 0, false);
  CHECK(low.size() == 16);
  CHECK(workers_of(low).size() == rows_for_workers({60, 16}));
  CHECK_FALSE(has(low, "for each sample."));
}

TEST_CASE("the bar is full at 100 % only, and the time left is that of `status`") {
  json now = look(1, 97, 1);
  json& s = now.at("status");
  s["samples_delivered"] = 97;
  s["samples_done"] = 97;
  s["samples_expected"] = 100;
  s["eta_seconds"] = 9840.0;
  const auto screen = top_screen({now, now, now}, "", {100, 24}, 0, false);
  CHECK(has(screen, "progress [###############.]  97 %  2 h 44 m left"));
  CHECK(time_left_of(s) == "2 h 44 m left");
  s["samples_done"] = 100;
  CHECK(has(top_screen({now, now, now}, "", {100, 24}, 0, false), "progress [################] 100 %"));
}

TEST_CASE("the progress of a resumed stream counts what was delivered before") {
  json now = look(1, 50, 1);
  now.at("status")["samples_expected"] = 100;
  now.at("status")["samples_before"] = 300;
  const auto screen = top_screen({now, now, now}, "", {100, 24}, 0, false);
  CHECK(has(screen, " 87 %"));  // 87.5 % is rounded down, as in status
  CHECK(has(screen, "50 of 100 delivered, 0 failed, 0 quarantined; 300 before this run"));
}

TEST_CASE("the worker that the device waits for comes first, not one with a similar number") {
  const json now = look(0, 0, 40, 3);
  CHECK(workers_of(top_screen({now, now, now}, "", {100, 60}, 0, false)).front() == "worker/3");
  const json other = look(0, 0, 40, 33);
  CHECK(workers_of(top_screen({other, other, other}, "", {100, 60}, 0, false)).front() == "worker/33");
}

TEST_CASE("workers beyond the screen are reached by scrolling, down to the last one and no further") {
  const json now = look(0, 0, 40);
  const screen_size size{100, 24};
  const std::size_t rows = rows_for_workers(size);
  CHECK(workers_of(top_screen({now, now, now}, "", size, 0, false)).size() == rows);
  CHECK(last_first_worker(40, size) == 40 - rows);
  const auto end = top_screen({now, now, now}, "", size, 1000, false);
  CHECK(end.size() <= size.rows);
  CHECK(workers_of(end).back() == "worker/39");
  CHECK(workers_of(end).size() == rows);
  CHECK(has(end, "to 40 of 40"));
  CHECK(last_first_worker(3, size) == 0);
  CHECK_FALSE(has(top_screen({look(0, 0, 3), look(0, 0, 3), look(0, 0, 3)}, "", size, 0, false), " of 3:"));
}

TEST_CASE("on 24 lines hosts leave room for the workers, and many hosts are summed up") {
  json now = look(0, 0, 40);
  json hosts = json::array();
  for (int i = 0; i < 50; ++i) {
    hosts.push_back({{"name", "loader-" + std::to_string(i)},
                     {"address", "10.0.0.7:41234"},
                     {"state", "ready"},
                     {"workers", json::array()},
                     {"samples_per_second", 10.0},
                     {"bytes_per_second", 1e6},
                     {"round_trip_seconds", 0.001},
                     {"cpu_cores", 1.5}});
  }
  now.at("status")["hosts"] = hosts;
  const screen_size size{80, 24};
  const auto screen = top_screen({now, now, now}, "event", size, 0, false);
  CHECK(screen.size() == 24);
  CHECK(std::ranges::all_of(screen, [](const std::string& line) { return line.size() <= 80; }));
  CHECK(has(screen, "49 other hosts: 0/0 workers, 490 samples/s, 46.7 MiB/s"));
  CHECK(std::ranges::count_if(screen, [](const std::string& line) { return line.starts_with("loader-"); }) == 1);
  const std::size_t lines = more_lines(now, size);
  CHECK(lines == 4);
  CHECK(workers_of(screen).size() == rows_for_workers(size, lines));
  CHECK(workers_of(screen).size() == 7);
  const auto end = top_screen({now, now, now}, "event", size, 1000, false);
  CHECK(workers_of(end).back() == "worker/39");
  CHECK(end.size() == 24);
  for (const std::size_t rows : {1U, 2U, 5U, 12U, 13U, 15U, 19U, 22U}) {
    INFO(rows);
    CHECK(top_screen({now, now, now}, "event", {20, rows}, 7, false).size() <= std::max<std::size_t>(rows, 2));
  }
}

TEST_CASE("the screen never exceeds its size") {
  const json now = look(0, 0, 40, 3);
  for (const std::size_t rows : {1U, 2U, 5U, 11U, 12U, 13U, 24U}) {
    for (const std::size_t columns : {1U, 20U, 80U}) {
      for (const std::string& line : top_screen({now, now, now}, "event", {columns, rows}, 7, false))
        CHECK(line.size() <= columns);
      CHECK(top_screen({now, now, now}, "event", {columns, rows}, 7, false).size() <=
            std::max<std::size_t>(rows, 2));
    }
  }
}

TEST_CASE("without a width no line on the screen is cut") {
  const std::string event(300, 'e');
  json now = look(0, 0, 2, 1);
  now.at("status").at("session") = std::string(100, 's');
  now.at("status").at("workers")[0].at("state") = std::string(100, 'w');
  const auto screen = top_screen({now, now, now}, event, {0, 24}, 0, false);
  CHECK(has(screen, "penstock " + std::string(100, 's') + "  ok  epoch 0  pid 1"));
  CHECK(has(screen, event));
  CHECK(has(screen, std::string(100, 'w')));
  CHECK(has(screen, "worker"));
}

TEST_CASE("the screen of a pool shows jobs per second and the functions with the most to do") {
  const auto pool = [](std::int64_t seconds, std::uint64_t done) {
    json all = look(seconds, done, 1);
    json functions = json::array();
    for (int i = 0; i < 5; ++i) {
      functions.push_back({{"name", "f" + std::to_string(i)},
                           {"waiting", i},
                           {"running", 0},
                           {"ok", 1},
                           {"failed", 0},
                           {"retried", 0}});
    }
    all.at("status")["jobs"] = {{"submitted", done + 10}, {"waiting", 10},     {"running", 0},
                                {"ok", done - 1},         {"failed", 1},       {"retried", 0},
                                {"argument_bytes", 0},    {"result_bytes", 0}, {"functions", functions}};
    return all;
  };
  const auto screen = top_screen({pool(0, 1), pool(7, 701), pool(10, 2201)}, "", {100, 24}, 0, false);
  CHECK(has(screen, "500 jobs/s  (mean of 10 s: 220)"));
  CHECK(has(screen, "2211 jobs submitted, 10 waiting, 0 running, 2200 ok, 1 failed"));
  CHECK(has(screen, "f4  4 waiting"));
  CHECK(has(screen, "f3  3 waiting"));
  CHECK(has(screen, "and 3 other functions"));
  CHECK(has(screen, "jobs/s"));
  CHECK_FALSE(has(screen, "samples"));
  CHECK_FALSE(has(screen, "epoch"));
  CHECK(screen.size() == 24);
}

namespace {

/// A busy session of three workers, and the sacrificial worker in this state.
json after_a_quarantine(const std::string& state) {
  json all = look(10, 33'333, 3, 1);
  all.at("status")["bytes_uploaded"] = 10 * 1'048'575;
  json& workers = all.at("status").at("workers");
  for (json& w : workers) {
    w["rss_bytes"] = 123'000'000;
    w["restarts"] = 12;
    w["current_sample"] = "train/n01440764/ILSVRC2012_val_00000293.jpeg";
    w["current_sample_seconds"] = 0.0123;
  }
  json sacrificial = workers[0];
  sacrificial["id"] = 64;
  sacrificial["state"] = state;
  sacrificial["sacrificial"] = true;
  if (state == "stopped") {
    sacrificial["pid"] = nullptr;
    sacrificial["current_sample"] = nullptr;
  }
  workers.push_back(sacrificial);
  return all;
}

std::string line_with(const std::vector<std::string>& screen, const std::string& text) {
  const auto at =
      std::ranges::find_if(screen, [&](const std::string& line) { return line.starts_with(text); });
  return at == screen.end() ? std::string() : *at;
}

}  // namespace

TEST_CASE(
    "on 80 columns the bar is visible and samples are distinguishable, during a probation and after it") {
  const json before = look(0, 0, 3, 1);
  for (const char* const state : {"stopped", "ready"}) {
    CAPTURE(state);
    json now = after_a_quarantine(state);
    now["status"]["eta_seconds"] = 31;  // over a longer time than that between the looks
    const auto screen = top_screen({before, before, now}, "", {80, 24}, 0, false);
    CHECK(screen.size() == 24);
    CHECK(line_with(screen, "progress [").find(" 33 %  31 s left") != std::string::npos);
    CHECK(has(screen, "3333 samples/s"));
    CHECK(has(screen, "1.00 MiB/s"));
    CHECK(line_with(screen, "worker/1 ").ends_with("2012_val_00000293.jpeg"));
    CHECK(has(screen, "worker/64") == (state == std::string("ready")));
    CHECK(has(screen, "* the sacrificial worker") == (state == std::string("ready")));
    CHECK(workers_shown(now) == (state == std::string("ready") ? 4U : 3U));
    now["status"]["stalled"] = {{"seconds", 8}, {"text", "waiting for worker/1"}, {"worker", 1}, {"kind", "sample"}};
    CHECK_FALSE(has(top_screen({before, before, now}, "", {80, 24}, 0, false), " left"));
  }
}

TEST_CASE("top shows the stall of a session or a pool, and what is awaited") {
  json now = look(10, 0, 1);
  now.at("status")["stalled"] = {{"kind", "worker"},
                                 {"seconds", 8.2},
                                 {"text", "waiting for worker/0, which is starting"},
                                 {"worker", 0}};
  CHECK(has(top_screen({now, now, now}, "", {80, 24}, 0, false),
            "stalled  8 s, waiting for worker/0, which is starting"));
  now.at("status")["jobs"] = {{"submitted", 1}, {"waiting", 1}, {"running", 0}, {"ok", 0}, {"failed", 0}};
  CHECK(has(top_screen({now, now, now}, "", {80, 24}, 0, false),
            "stalled  8 s, waiting for worker/0, which is starting"));
}

TEST_CASE("for a data loader top shows batches, and counts those in progress like status") {
  json now = look(10, 0, 1);
  json& s = now.at("status");
  s["jobs"] = {{"of_batches", true}, {"submitted", 9}, {"waiting", 1}, {"running", 2}, {"ok", 6}, {"failed", 0}, {"retried", 0}, {"cancelled", 0},
               {"functions", json::array({{{"name", "call"}, {"waiting", 0}, {"running", 3}, {"ok", 6}, {"failed", 0}}})}};
  s["epoch"] = 2;
  s["batches_done"] = 6;
  s["batches_expected"] = 24;
  json then = now;
  then.at("now_ns") = 0;
  s.at("batches_delivered") = 60;
  s.at("workers")[0].at("current_sample") = "sample 37 (job 8)";
  const auto screen = top_screen({then, then, now}, "", {0, 24}, 0, false);
  CHECK(has(screen, "6.0 batches/s"));
  CHECK(has(screen, "60 batches delivered, 2 loading, 1 waiting for a worker"));
  CHECK(has(screen, " 25 % of this epoch"));
  CHECK(has(screen, "  sample 37"));
  CHECK_FALSE(has(screen, "job"));
  CHECK_FALSE(has(screen, "call"));
}
