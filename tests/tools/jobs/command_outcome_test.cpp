#include "tools/penstock/jobs/command_outcome.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace penstock;
using namespace penstock::cli;
using nlohmann::json;

namespace {

protocol::command_outcome exited(int code, const std::string& out = "", const std::string& err = "") {
  return {code, {out, out.size()}, {err, err.size()}, 1'500'000'000};
}

}  // namespace

TEST_CASE("a command's result has its exit code and its output") {
  const job_outcome outcome = outcome_of(exited(0, "a\n\"b\"", "\xff"), exit_rule::must_be_0);
  CHECK(outcome.status == job_status::ok);
  CHECK(outcome.error == "null");
  CHECK(outcome.seconds == 1.5);
  CHECK(outcome.exit_code == 0);
  CHECK_FALSE(outcome.again);
  CHECK(json::parse(outcome.result) ==
        json{{"exit", 0}, {"stdout", "a\n\"b\""}, {"stderr", "\xEF\xBF\xBD"}, {"stderr_base64", "/w=="}});
}

TEST_CASE("a nonzero exit code is ok unless it must be 0, and can be retried in both cases") {
  const job_outcome lenient = outcome_of(exited(3), exit_rule::any_is_ok);
  CHECK(lenient.status == job_status::ok);
  CHECK(json::parse(lenient.result)["exit"] == 3);
  CHECK(lenient.again);
  const job_outcome strict = outcome_of(exited(3, "out"), exit_rule::must_be_0);
  CHECK(strict.status == job_status::exception);
  CHECK(json::parse(strict.result)["stdout"] == "out");
  CHECK(json::parse(strict.error) == json{{"type", "exit"}, {"text", "the command exited with 3"}});
  CHECK(strict.again);
}

TEST_CASE("people see the last line that a failed command wrote to stderr") {
  CHECK(outcome_of(exited(1, "", "first\nno such file\n\n"), exit_rule::must_be_0).text ==
        "the command exited with 1: no such file");
  CHECK(outcome_of(exited(1), exit_rule::must_be_0).text == "the command exited with 1");
}

TEST_CASE("bytes that were not kept are counted") {
  protocol::command_outcome done = exited(0, "kept", "whole");
  done.out.written = 1000;
  const json result = json::parse(outcome_of(done, exit_rule::any_is_ok).result);
  CHECK(result["stdout_bytes"] == 1000);
  CHECK_FALSE(result.contains("stderr_bytes"));
}

TEST_CASE("a nonzero exit code is reported to the pool, as a failure if it must be 0") {
  CHECK(verdict_on(outcome_of(exited(0), exit_rule::any_is_ok)) == job_verdict::ok);
  CHECK(verdict_on(outcome_of(exited(3), exit_rule::any_is_ok)) == job_verdict::nonzero_exit);
  CHECK(verdict_on(outcome_of(exited(3), exit_rule::must_be_0)) == job_verdict::failed);
}
