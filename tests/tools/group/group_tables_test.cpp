#include "tools/penstock/group/group_tables.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

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

TEST_CASE("a group has one line per rank, with its rate since the last poll") {
  const json before = group_of({rank(0, 100), rank(1, 100)});
  const json now = group_of({rank(0, 200), rank(1, 150)});
  CHECK("\n" + group_for_people(now, before, 2, 200) == R"(
group photos: 2 live ranks
RANK  STATE  PID  EPOCH  BATCHES  DONE  SAMPLES  WORKERS  WAITS FOR
   0  ok     100      1       20  50 %     50/s        1
   1  ok     101      1       15  37 %     25/s        1
)");
}

TEST_CASE("a restarted rank's progress includes earlier deliveries") {
  json again = rank(1, 100);
  again["status"]["samples_before"] = 400U;
  CHECK_THAT(group_for_people(group_of({again}), nullptr, 0, 200), ContainsSubstring("62 %"));
}

TEST_CASE("a restarted rank has no rate, and an unresponsive one is marked") {
  json again = rank(0, 10);
  again["status"]["pid"] = 999U;
  json silent = rank(1, 0);
  silent["status"] = nullptr;
  const std::string text =
      group_for_people(group_of({again, silent}), group_of({rank(0, 100), rank(1, 100)}), 1, 200);
  CHECK(text.find("/s") == std::string::npos);
  CHECK(text.find("no answer") != std::string::npos);
}

TEST_CASE("a group is well if every rank answers, is ok and moves") {
  CHECK(all_well(group_of({rank(0, 1), rank(1, 1)})));
  json one = rank(1, 1);
  one["status"]["state"] = "paused";
  CHECK_FALSE(all_well(group_of({rank(0, 1), one})));
  one = rank(1, 1);
  one["status"]["stalled"] = {{"text", "waiting for worker/0"}};
  CHECK_FALSE(all_well(group_of({rank(0, 1), one})));
  CHECK(group_for_people(group_of({one}), json(), 0, 200).find("waiting for worker/0") != std::string::npos);
  one["status"] = nullptr;
  CHECK_FALSE(all_well(group_of({one})));
}
