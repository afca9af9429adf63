#include "tools/penstock/jobs/job_log.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace penstock;
using namespace penstock::cli;
using nlohmann::json;

namespace {

const std::chrono::system_clock::time_point then{std::chrono::seconds(1'800'000'000)};

}  // namespace

TEST_CASE("a command's line in the job log tells when it ended, how, how long it ran, and its input") {
  job_outcome outcome;
  outcome.attempts = 2;
  outcome.exit_code = 3;
  outcome.seconds = 1.25;
  const std::string line = job_log_line(then, 6, outcome, "a \"b\"\xff");
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(json::parse(line) == json{{"time", "2027-01-15T08:00:00.000000Z"},
                                  {"index", 6},
                                  {"status", "ok"},
                                  {"attempts", 2},
                                  {"exit", 3},
                                  {"seconds", 1.25},
                                  {"text", nullptr},
                                  {"line", "a \"b\"\xEF\xBF\xBD"}});
}

TEST_CASE("what a job has not, is null in the job log") {
  job_outcome outcome;
  outcome.status = job_status::poisoned;
  outcome.text = "it killed 3 workers";
  const json line = json::parse(job_log_line(then, 0, outcome, ""));
  CHECK(line.at("exit").is_null());
  CHECK(line.at("seconds").is_null());
  CHECK(line.at("text") == "it killed 3 workers");
}

TEST_CASE("a job log that cannot be written says so by its name") {
  CHECK(job_log::open("/no/such/folder/log").error().message.find("'/no/such/folder/log'") !=
        std::string::npos);
  const auto full = job_log::open("/dev/full");
  REQUIRE(full);
  CHECK((*full)->add("x\n").error().message == "writing the job log '/dev/full': No space left on device");
}
