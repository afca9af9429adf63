// What `top` and `describe` show of a running session, from made-up facts.
#include "actors/host/pipeline_view.hpp"

#include "runtime/supervision/progress_watch.hpp"
#include "tests/runtime/supervision/progress_facts.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

TEST_CASE("top and a stall report name the same one") {
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
