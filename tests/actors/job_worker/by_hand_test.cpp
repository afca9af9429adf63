// The options of a job worker program started by hand.
#include "actors/job_worker/by_hand.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::job_worker;

namespace {

std::string refusal(const std::vector<std::string>& arguments) {
  const auto parsed = parse_by_hand(arguments);
  if (parsed) return {};
  return parsed.error().code == errc::usage ? parsed.error().message : "not a usage error";
}

}  // namespace

TEST_CASE("by-hand options follow the program's own arguments and name a function") {
  for (const auto& arguments : {std::vector<std::string>{"--run", "thumbnail"},
                                {"--run=thumbnail"},
                                {"--model", "x.onnx", "--run", "thumbnail"}}) {
    const auto parsed = parse_by_hand(arguments);
    REQUIRE(parsed);
    CHECK(parsed->asked);
    CHECK(parsed->function == "thumbnail");
    CHECK_FALSE(parsed->list);
  }
  CHECK(parse_by_hand({"--list"})->list);
  CHECK(parse_by_hand({"--help"})->help);
  CHECK_FALSE(parse_by_hand({})->asked);
  CHECK_FALSE(parse_by_hand({"--model", "x.onnx"})->asked);
}

TEST_CASE("invalid by-hand options are refused, and the error says what to write instead") {
  CHECK(refusal({"--run"}) == "--run needs a value");
  CHECK(refusal({"--run="}) == "which function? Write --run NAME; --list shows the functions");
  CHECK(refusal({"--run", "a", "--run", "b"}) == "--run is given twice, but only one function can run");
  CHECK(refusal({"--list=x"}) == "--list takes no value");
  CHECK(refusal({"--list", "--run", "a"}) == "--list does not run a function: leave out --run or --list");
  CHECK(refusal({"--run", "a", "--verbose"}) == "unknown option '--verbose'; --help lists the options");
}
