#include "tools/penstock/jobs/job_log.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

using namespace penstock;
using namespace penstock::cli;
using nlohmann::json;

namespace {

const std::chrono::system_clock::time_point then{std::chrono::seconds(1'800'000'000)};

}  // namespace

TEST_CASE("a command's line in the job log says when and how it ended, how long it ran, and its input") {
  job_outcome outcome;
  outcome.attempts = 2;
  outcome.exit_code = 3;
  outcome.seconds = 1.25;
  outcome.started = then - std::chrono::milliseconds(1250);
  const std::string line = job_log_line(then, 6, outcome, "a \"b\"\xff");
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(json::parse(line) == json{{"time", "2027-01-15T08:00:00.000000Z"},
                                  {"index", 6},
                                  {"status", "ok"},
                                  {"attempts", 2},
                                  {"exit", 3},
                                  {"seconds", 1.25},
                                  {"text", nullptr},
                                  {"line", "a \"b\"\xEF\xBF\xBD"},
                                  {"started", "2027-01-15T07:59:58.750000Z"},
                                  {"signal", nullptr}});
}

TEST_CASE("unknown facts of a job are null in the job log") {
  job_outcome outcome;
  outcome.status = job_status::poisoned;
  outcome.text = "it killed 3 workers";
  const json line = json::parse(job_log_line(then, 0, outcome, ""));
  CHECK(line.at("exit").is_null());
  CHECK(line.at("seconds").is_null());
  CHECK(line.at("text") == "it killed 3 workers");
  CHECK(line.at("started").is_null());
  CHECK(line.at("signal").is_null());
}

TEST_CASE("the error about a job log that cannot be written names it") {
  CHECK(job_log::open("/no/such/folder/log").error().message.find("'/no/such/folder/log'") !=
        std::string::npos);
  const auto full = job_log::open("/dev/full");
  REQUIRE(full);
  CHECK((*full)->add("x\n").error().message == "writing the job log '/dev/full': No space left on device");
}

TEST_CASE("an incomplete line left in the job log by an earlier run is ended before the next one") {
  std::string path = (std::filesystem::temp_directory_path() / "penstock-log-XXXXXX").string();
  const unique_fd made(::mkstemp(path.data()));
  REQUIRE(::write(made.get(), R"({"time":"2027)", 13) == 13);
  const auto log = job_log::open(path);
  REQUIRE(log);
  REQUIRE((*log)->add("{}\n"));
  std::ifstream in(path);
  std::string torn;
  std::string whole;
  std::getline(in, torn);
  std::getline(in, whole);
  CHECK(torn == R"({"time":"2027)");
  CHECK(whole == "{}");
  std::filesystem::remove(path);
}
