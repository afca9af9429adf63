#include "tools/penstock/group/group_tables.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>

using namespace penstock::cli;
using Catch::Matchers::ContainsSubstring;
using json = nlohmann::ordered_json;

namespace {

json rank(int number, std::uint64_t delivered) {
  return {{"rank", number},
          {"session", "photos-rank" + std::to_string(number)},
          {"status",
           {{"state", "ok"},
            {"pid", 100U + static_cast<unsigned>(number)},
            {"epoch", 1U},
            {"batches_delivered", delivered / 10},
            {"samples_delivered", delivered},
            {"samples_done", delivered},
            {"samples_expected", 400U},
            {"stalled", nullptr},
            {"workers", {{{"pid", 7}}, {{"pid", nullptr}}}}}}};
}

json group_of(std::initializer_list<json> ranks) {
  return {{"group", "photos"}, {"ranks", ranks}};
}

}  // namespace

TEST_CASE("a group has one line per rank, with its rate, and the sum of all rates") {
  json now = group_of({rank(0, 200), rank(1, 150), rank(2, 150), rank(3, 150)});
  now["ranks"][0]["status"]["rate"] = 150.0;
  now["ranks"][1]["status"]["rate"] = 75.5;
  now["ranks"][2]["status"]["rate"] = 80.0;
  now["ranks"][2]["status"]["state"] = "paused";
  now["ranks"][3]["status"]["rate"] = nullptr;  // not measured yet
  CHECK("\n" + group_for_people(now, 200) == R"(
group photos: 4 live ranks, 226 samples/s
RANK  STATE   PID  EPOCH  BATCHES  DONE  SAMPLES/S  WORKERS  WAITS FOR
   0  ok      100      1       20  50 %        150        1
   1  ok      101      1       15  37 %       75.5        1
   2  paused  102      1       15  37 %          -        1
   3  ok      103      1       15  37 %          -        1
)");
  for (json& one : now["ranks"]) one["status"]["jobs"] = {{"of_batches", true}};
  CHECK_THAT(group_for_people(now, 200), ContainsSubstring("4 live ranks, 226 batches/s\n") && ContainsSubstring("  BATCHES/S"));
}

TEST_CASE("the ranks of an ended group are not live, and the table shows how each ended") {
  json finished = rank(0, 400);
  finished["status"].update({{"state", "ended"}, {"outcome", "finished"}});
  json died = rank(1, 100);
  died["status"].update({{"state", "ended"}, {"outcome", "died"}});
  CHECK("\n" + group_for_people(group_of({finished, died}), 200) == R"(
group photos: 2 ended ranks
RANK  STATE     PID  EPOCH  BATCHES   DONE  SAMPLES/S  WORKERS  WAITS FOR
   0  finished  100      1       40  100 %          -        1
   1  died      101      1       10   25 %          -        1
)");
}

TEST_CASE("a restarted rank's progress includes earlier deliveries") {
  json again = rank(1, 100);
  again["status"]["samples_before"] = 400U;
  CHECK_THAT(group_for_people(group_of({again}), 200), ContainsSubstring("62 %"));
}

TEST_CASE("an unresponsive rank is marked, with the reason") {
  json silent = rank(1, 0);
  silent["status"] = nullptr;
  silent["error"] = "suspended since yesterday";
  CHECK_THAT(group_for_people(group_of({rank(0, 10), silent}), 200),
             ContainsSubstring("   1  no answer") && ContainsSubstring("suspended since yesterday"));
}

TEST_CASE("a group is healthy if every rank answers, is ok and makes progress") {
  CHECK(all_well(group_of({rank(0, 1), rank(1, 1)})));
  json one = rank(1, 1);
  one["status"]["state"] = "paused";
  CHECK_FALSE(all_well(group_of({rank(0, 1), one})));
  one = rank(1, 1);
  one["status"]["stalled"] = {{"text", "waiting for worker/0"}};
  CHECK_FALSE(all_well(group_of({rank(0, 1), one})));
  CHECK(group_for_people(group_of({one}), 200).find("waiting for worker/0") != std::string::npos);
  one["status"] = nullptr;
  CHECK_FALSE(all_well(group_of({one})));
}

// ---- loader hosts -------------------------------------------------------------------------------------------

namespace {

/// A rank that calls a host with two workers, and has lost another one.
json rank_with_host(int number) {
  json one = rank(number, 100);
  json& s = one["status"];
  s["hosts_called"] = {"10.0.0.7:7077"};
  s["hosts"] = {{{"name", "loader-1"}, {"address", "10.0.0.7:7077"}, {"pid", 33}, {"state", "ready"}, {"workers", {64, 65}},
                 {"samples_per_second", 150.0}, {"bytes_per_second", 1.5e6}, {"round_trip_seconds", 0.0002}, {"cpu_cores", 1.5}}};
  s["hosts_lost"] = {{{"name", "loader-2"}, {"address", "10.0.0.8:7077"}, {"why", "it was silent for 5 s"}, {"seconds", 10 + number}}};
  s["workers"].push_back({{"id", 64}, {"pid", 8}, {"state", "ready"}});
  s["workers"].push_back({{"id", 65}, {"pid", 9}, {"state", "starting"}});
  return one;
}

std::string below_ranks(const std::string& text) {
  return text.substr(text.find("calling"));
}

}  // namespace

TEST_CASE("a host that ranks share is one line with their sums, and names the ranks") {
  const std::string text = group_for_people(group_of({rank_with_host(0), rank_with_host(1), rank(2, 100), rank_with_host(3)}), 200);
  CHECK("\n" + below_ranks(text) == R"(
calling 10.0.0.7:7077
host      ranks  state  workers  samples/s  MiB/s    trip  cores  address
loader-1  0-1,3  ready      3/6        450    4.3  200 us    4.5  10.0.0.7:7077
lost: loader-2 (10.0.0.8:7077) 10 s ago: it was silent for 5 s
)");
}

TEST_CASE("hosts that each join one rank have separate lines") {
  json first = rank_with_host(0);
  json second = rank_with_host(1);
  for (json* one : {&first, &second}) {
    json& s = (*one)["status"];
    s["hosts_lost"] = json::array();
    s["hosts_called"] = json::array();
  }
  first["status"]["hosts_join_at"] = "10.0.0.1:7077";
  second["status"]["hosts_join_at"] = "10.0.0.2:7077";
  second["status"]["hosts"][0]["pid"] = 34;
  second["status"]["hosts"][0]["state"] = "draining";
  second["status"]["hosts"][0]["name"] = "loader-3";
  const std::string text = group_for_people(group_of({first, second}), 200);
  CHECK_THAT(text, ContainsSubstring("hosts join at 10.0.0.1:7077 and at 1 address of other ranks\n"));
  CHECK_THAT(text, ContainsSubstring("loader-1  0      ready         1/2"));
  CHECK_THAT(text, ContainsSubstring("loader-3  1      draining      1/2"));
}

TEST_CASE("a group without hosts has no section about them") {
  const std::string text = group_for_people(group_of({rank(0, 100)}), 200);
  CHECK(std::ranges::count(text, '\n') == 3);
}
