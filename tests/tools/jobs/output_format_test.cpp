#include "tools/penstock/jobs/output_format.hpp"

#include "tools/penstock/jobs/command_outcome.hpp"
#include "tools/penstock/jobs/map_dry_run.hpp"

#include <catch2/catch_test_macros.hpp>

#include <random>

using namespace penstock;
using namespace penstock::cli;

namespace {

std::string any_bytes(std::mt19937_64& random, std::size_t count) {
  std::string bytes(count, '\0');
  for (char& one : bytes) one = static_cast<char>(random());
  return bytes;
}

std::string line_of_command(const std::string& out) {
  protocol::command_outcome done;
  done.out = {out, out.size()};
  return output_line(3, outcome_of(done, exit_rule::any_is_ok), "\"in\"");
}

}  // namespace

TEST_CASE("any bytes that a command writes survive in a JSON line") {
  std::mt19937_64 random(1);
  for (std::size_t count = 0; count < 200; ++count) {
    const std::string bytes = any_bytes(random, count);
    CHECK(from_base64(base64(bytes)) == bytes);
    CHECK(written_as(output_format::raw, line_rule::text, line_of_command(bytes)).out == bytes);
  }
  const std::string text = "plain \xc3\xa4 \"text\"\n";
  CHECK(line_of_command(text).find("base64") == std::string::npos);
  CHECK(written_as(output_format::raw, line_rule::text, line_of_command(text)).out == text);
}

TEST_CASE("base64 follows RFC 4648") {
  CHECK(base64("") == "");
  CHECK(base64("f") == "Zg==");
  CHECK(base64("fo") == "Zm8=");
  CHECK(base64("foobar") == "Zm9vYmFy");
  CHECK(from_base64("Zm9vYg==") == "foob");
}

TEST_CASE(
    "a function's result is written as text if it is a string, and otherwise as JSON, on its own line") {
  job_outcome outcome;
  outcome.result = R"("a\nb")";
  CHECK(written_as(output_format::raw, line_rule::json, output_line(0, outcome, "1")).out == "a\nb\n");
  outcome.result = R"({"exit":1,"stdout":"x"})";
  CHECK(written_as(output_format::tagged, line_rule::json, output_line(0, outcome, "[1]")).out ==
        "[1]\t{\"exit\":1,\"stdout\":\"x\"}\n");
}

TEST_CASE("a job without a result writes no line, and an input that is too long is named by its line") {
  job_outcome outcome;
  outcome.status = job_status::poisoned;
  CHECK(written_as(output_format::raw, line_rule::text, output_line(0, outcome, "1")).out.empty());
  outcome.result = "1";
  CHECK(written_as(output_format::tagged, line_rule::json, output_line(41, outcome, "null")).out ==
        "line 42\t1\n");
}

TEST_CASE("words are shown as JSON") {
  CHECK(words_as_json(2, {"a", "\""}) == R"({"index":2,"words":["a","\""]})");
}
