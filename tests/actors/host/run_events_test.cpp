// The events that a run makes of what happens.
#include "actors/host/run_events.hpp"

#include "runtime/telemetry/report_json.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <numeric>

using namespace penstock;

TEST_CASE("the event of a lost batch lists its samples, and counts those without a number") {
  const event lost = host::event_of(lost_batch{.epoch = 2, .sequence = 20, .blamed = 61, .samples = 4, .numbers = {60, 61, 62}, .text = "4 samples are lost"}, 1000);
  const nlohmann::ordered_json j = telemetry::as_json(lost);
  CHECK(j.at("kind") == "batch_lost");
  CHECK(j.at("epoch") == 2);
  CHECK(j.at("seq") == 20);
  CHECK(j.at("sample") == 61);
  CHECK(j.at("samples") == nlohmann::ordered_json{60, 61, 62});
  CHECK(j.at("samples_unlisted") == 1);
  CHECK(j.at("text") == "4 samples are lost");
}

TEST_CASE("the event of a large lost batch lists its first 1024 samples, and counts the others") {
  std::vector<std::uint64_t> numbers(4096);
  std::iota(numbers.begin(), numbers.end(), 10);
  const event lost = host::event_of(lost_batch{.samples = 4096, .numbers = numbers}, 5000);
  CHECK(lost.samples.size() == 1024);
  CHECK(lost.samples.back() == 1033);
  CHECK(lost.samples_unlisted == 3072);
  CHECK(host::event_of(lost_batch{.samples = 4096, .numbers = numbers}, 7).samples.size() == 7);
}
