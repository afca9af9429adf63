// The options of a worker program started by hand.
#include "actors/loader/by_hand.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::loader;

namespace {

std::string refusal(const std::vector<std::string>& arguments) {
  const auto parsed = parse_by_hand(arguments);
  if (parsed) return {};
  return parsed.error().code == errc::usage ? parsed.error().message : "not a usage error";
}

}  // namespace

TEST_CASE("samples are given one by one, as ranges, and by several options") {
  const auto parsed =
      parse_by_hand({"--config=c.toml", "--load", "7,3-5", "--load=0", "--epoch", "2", "--set", "a.b=1"});
  REQUIRE(parsed);
  CHECK(parsed->asked);
  CHECK(parsed->config == "c.toml");
  CHECK(parsed->samples == std::vector<index_range>{{7, 7}, {3, 5}, {0, 0}});
  CHECK(parsed->epoch == 2);
  CHECK(parsed->sets == std::vector<std::string>{"a.b=1"});
}

TEST_CASE(
    "arguments before our first option belong to the program, and without our options nothing is requested") {
  const auto parsed = parse_by_hand({"--shard", "3", "--config", "c.toml", "--setup-only"});
  REQUIRE(parsed);
  CHECK(parsed->setup_only);
  CHECK_FALSE(parse_by_hand({"--shard", "3"})->asked);
  CHECK_FALSE(parse_by_hand({})->asked);
  CHECK(parse_by_hand({"--help"})->help);
}

TEST_CASE("invalid options are refused, and the error says what to write instead") {
  CHECK(refusal({"--load", "7"}) == "which config? Write --config FILE");
  CHECK(refusal({"--config", "c.toml"}) ==
        "which samples? Write --load 7, --load 3,7,10-20, or --setup-only for none");
  CHECK(refusal({"--config"}) == "--config needs a value");
  CHECK(refusal({"--config", "c.toml", "--laod", "7"}) ==
        "unknown option '--laod'; --help lists the options");
  CHECK(refusal({"--load", "7-3"}) == "--load 7-3: the range 7-3 ends before it begins");
  CHECK(refusal({"--setup-only=yes"}) == "--setup-only takes no value");
  CHECK(refusal({"--config", "c.toml", "--load", "7", "--setup-only"}) ==
        "give either --load or --setup-only, not both");
  for (const char* const list : {"", ",", "7,", "-1", "7-", "seven", "1-2-3", "18446744073709551616"})
    CHECK(refusal({"--load", list}).find("is not a sample index; write --load 7") != std::string::npos);
}
