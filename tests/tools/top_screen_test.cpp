// The screen of `penstock top`, from made-up answers of a session.
#include "tools/penstock/watch/top_screen.hpp"

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

TEST_CASE("the rate is that of the last seconds, and the mean of ten stands beside it") {
  const json then = look(0, 0, 1);
  const json lately = look(7, 700, 1);
  const json now = look(10, 2200, 1);
  const auto screen = top_screen({then, lately, now}, "", {100, 24}, 0, false);
  CHECK(has(screen, "500 samples/s"));
  CHECK(has(screen, "(mean of 10 s: 220)"));
}

TEST_CASE("the worker that the device waits for is the first one, and no other of a like number") {
  const json now = look(0, 0, 40, 3);
  CHECK(workers_of(top_screen({now, now, now}, "", {100, 60}, 0, false)).front() == "worker/3");
  const json other = look(0, 0, 40, 33);
  CHECK(workers_of(top_screen({other, other, other}, "", {100, 60}, 0, false)).front() == "worker/33");
}

TEST_CASE("workers beyond the screen are reached by scrolling, to the last one and no further") {
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

TEST_CASE("a screen of any size is never overrun") {
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

TEST_CASE("without a width nothing on the screen is cut") {
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

TEST_CASE("the screen of a pool tells jobs a second and the functions with the most to do") {
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
