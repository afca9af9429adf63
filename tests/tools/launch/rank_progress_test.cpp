#include "tools/penstock/launch/rank_progress.hpp"

#include "runtime/schedule/epoch_book.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::cli;
using nlohmann::ordered_json;

namespace {

std::vector<std::byte> state_at(std::uint64_t epoch, std::uint64_t batch) {
  schedule::stream_state state;
  state.identity.batch_size = 8;
  state.epoch = epoch;
  state.next_batch = batch;
  return schedule::serialise(state);
}

ordered_json epoch(std::uint64_t number, std::uint64_t from, std::uint64_t batches, double seconds = 1) {
  return {{"epoch", number},          {"from_batch", from}, {"from_position", 0},
          {"delivered", batches * 8}, {"batches", batches}, {"seconds", seconds}};
}

rank_progress at(std::uint64_t number, std::uint64_t batch, std::vector<ordered_json> epochs) {
  return {batch, state_at(number, batch), std::move(epochs)};
}

}  // namespace

TEST_CASE("a rank's messages arrive unchanged") {
  const rank_progress said = at(1, 3, {epoch(0, 0, 10), epoch(1, 0, 3)});
  const std::string line = line_of(said);
  CHECK(line.ends_with('\n'));
  const auto heard = parse_progress(line);
  REQUIRE(heard);
  CHECK(heard->batches == said.batches);
  CHECK(heard->state == said.state);
  CHECK(heard->epochs == said.epochs);
  const auto life = parse_progress(line_of(rank_progress{7}));
  REQUIRE(life);
  CHECK(life->state.empty());
  const auto begin = parse_start(line_of(rank_start{said.state, 12}));
  REQUIRE(begin);
  CHECK(begin->state == said.state);
  CHECK(begin->delivered == 12);
  CHECK_FALSE(begin->alone);
  CHECK(parse_start(line_of(rank_start{said.state, 12, true}))->alone);
  CHECK(parse_start(line_of(rank_start{{}, 0, false, {{"report", "/data/r.json"}}}))->files.at("report") == "/data/r.json");
  CHECK(heard->group == group_end_word::none);
  for (const group_end_word word : {group_end_word::finished, group_end_word::stopped})
    CHECK(parse_progress(line_of(rank_progress{.group = word}))->group == word);
}

TEST_CASE("a rank hears which processes were lost, at its start and later, and ignores what it does not understand") {
  const std::chrono::system_clock::time_point time{std::chrono::microseconds(1'764'300'000'123'456)};
  const std::vector<lost_process_report> lost{{0, 17, "SIGSEGV", time}, {1, -1, "no such file", time}};
  rank_start start;
  start.lost = lost;
  REQUIRE(parse_start(line_of(start)));
  CHECK(parse_start(line_of(start))->lost == lost);
  CHECK(parse_lost(line_of_lost(lost)).value() == lost);
  CHECK(parse_lost(line_of(rank_start{})).value().empty());
  CHECK(parse_lost("{\"lost\":[{\"rank\":1}]}").value().empty());
  CHECK(parse_lost("{\"lost\":[1]}").value().empty());
  CHECK_FALSE(parse_lost("x"));
}

TEST_CASE("a line that is not a rank's message is refused") {
  for (const char* line : {"", "x", "[]", "{\"state\":1}", "{\"state\":\"abc\"}", "{\"state\":\"zz\"}",
                           "{\"epochs\":1}", "{\"epochs\":[{}]}"})
    CHECK_FALSE(parse_progress(line));
  CHECK_FALSE(parse_progress("{\"state\":\"" + std::string(4096, '0') + "\"}"));
  rank_progress much;
  for (std::uint64_t i = 0; i <= epochs_in_a_line; ++i) much.epochs.push_back(epoch(i, 0, 1));
  CHECK_FALSE(parse_progress(line_of(much)));
}

TEST_CASE("a rank that was killed resumes from its last state, and its epochs become one report") {
  rank_history history;
  history.heard(at(0, 4, {epoch(0, 0, 4, 0.5)}));
  history.heard(at(1, 3, {epoch(0, 0, 10, 2), epoch(1, 0, 3, 0.5)}));
  CHECK(history.state() == state_at(1, 3));
  history.begin_again();
  CHECK(history.delivered() == 13);
  history.heard(at(1, 5, {epoch(1, 3, 5, 0.25)}));
  ordered_json report{{"epochs", {epoch(1, 3, 10, 0.75), epoch(2, 0, 10)}}};
  history.complete(report);
  REQUIRE(report["epochs"].size() == 3);
  CHECK(report["epochs"][0] == epoch(0, 0, 10, 2));
  CHECK(report["epochs"][1] == epoch(1, 0, 10, 1.25));
}

TEST_CASE("what a killed rank did after its last state does not count and is delivered again") {
  rank_history history;
  history.heard({9, state_at(0, 9), {epoch(0, 0, 10), epoch(1, 0, 1)}});
  history.begin_again();
  ordered_json report{{"epochs", {epoch(0, 9, 10)}}};
  history.complete(report);
  REQUIRE(report["epochs"].size() == 1);
  CHECK(report["epochs"][0]["from_batch"] == 0);
}

TEST_CASE("a rank that is given up without a report has the epochs that it sent") {
  rank_history history;
  history.heard(at(1, 3, {epoch(0, 0, 10), epoch(1, 0, 3)}));
  history.begin_again();
  history.heard(at(1, 6, {epoch(1, 3, 6)}));
  ordered_json report{{"epochs", ordered_json::array()}};
  history.complete(report);
  CHECK(report["epochs"].size() == 2);
  CHECK(report["epochs"][1]["batches"] == 6);
}

TEST_CASE("a rank that never restarted keeps its own report") {
  rank_history history;
  history.heard(at(0, 4, {epoch(0, 0, 4)}));
  ordered_json report{{"epochs", {epoch(0, 0, 10)}}, {"samples", 79}};
  const ordered_json own = report;
  history.complete(report);
  CHECK(report == own);
}
