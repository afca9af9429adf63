#include "tools/penstock/watch/sample_history.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace penstock::cli;
using json = nlohmann::ordered_json;

namespace {

json failed_event() {
  return {{"time", "2026-11-27T09:12:44.123456Z"},
          {"kind", "sample_failed"},
          {"sample", 51},
          {"path", nullptr},
          {"exception", {{"type", "ValueError"}, {"message", "no line"}, {"frames", {"data.py:12, in __getitem__", "data.py:7, in line"}}}},
          {"text", "sample 51 failed: ValueError: no line"}};
}

}  // namespace

TEST_CASE("a target can be a sample, by number or by name") {
  CHECK(sample_in_target("sample/51") == "51");
  CHECK(sample_in_target("sample/cats/tom.jpg") == "cats/tom.jpg");
  CHECK_FALSE(sample_in_target("sample/"));
  CHECK_FALSE(sample_in_target("samples"));
  CHECK_FALSE(sample_in_target("worker/3"));
}

TEST_CASE("events belong to a sample by its number, or by its name if it has none") {
  CHECK(is_about_sample({{"sample", 51}, {"path", "a.jpg"}}, "51"));
  CHECK(is_about_sample({{"sample", 51}, {"path", "a.jpg"}}, "a.jpg"));
  CHECK_FALSE(is_about_sample({{"sample", 5}, {"path", nullptr}}, "51"));
  CHECK(is_about_sample({{"sample", nullptr}, {"path", "sample cat"}}, "cat"));
  CHECK(is_about_sample({{"sample", nullptr}, {"path", "cat"}}, "cat"));
  CHECK_FALSE(is_about_sample({{"sample", nullptr}, {"path", nullptr}}, "51"));
  CHECK_FALSE(is_about_sample({{"kind", "paused"}}, "51"));
}

TEST_CASE("a sample's history has the frames of its exception, the raising line first") {
  const std::string text = history_for_people({{"events", {failed_event()}}, {"quarantine", nullptr}}, 0);
  CHECK(text ==
        "sample 51\n"
        "  11-27 09:12:44    sample 51 failed: ValueError: no line\n"
        "    raised at       data.py:7, in line\n"
        "    called from     data.py:12, in __getitem__\n");
}

TEST_CASE("a sample quarantined by an earlier run has no events") {
  const json listed{{"sample", 7}, {"path", "cats/tom.jpg"}, {"causes", {"SIGABRT", "SIGABRT"}}, {"known", true}};
  CHECK(history_for_people({{"events", json::array()}, {"quarantine", listed}}, 0) ==
        "sample 7 (cats/tom.jpg)\n"
        "  quarantined       by an earlier run: SIGABRT, SIGABRT\n");
}
