#include "tools/penstock/jobs/job_outcome.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace penstock;
using namespace penstock::cli;
using nlohmann::json;

TEST_CASE("a JSON result is written to the output unchanged, on one line") {
  CHECK(json_of_bytes(R"({"a": 12345678901234567890123.10})") == R"({"a": 12345678901234567890123.10})");
  CHECK(json_of_bytes("[1,\n 2,\r\n 3]\n") == "[1,  2,   3] ");
  CHECK(json_of_bytes("null") == "null");
  CHECK(json_of_bytes(R"("line\nfeed")") == R"("line\nfeed")");
}

TEST_CASE("any other result becomes a JSON string") {
  CHECK(json::parse(json_of_bytes("plain text\nof two lines")) == "plain text\nof two lines");
  CHECK(json_of_bytes("") == R"("")");
  // A parser of the whole text accepts a byte order mark before a value, a parser of OUT does not.
  CHECK(json_of_bytes("\xEF\xBB\xBF"
                      "1") ==
        "\"\xEF\xBB\xBF"
        "1\"");
  CHECK(json::parse(json_of_bytes("\xff!")) == "\xEF\xBF\xBD!");
  CHECK(json::parse(json_of_bytes("{\"torn\":")) == "{\"torn\":");
}

TEST_CASE("a line of the output has every field, however the job ended") {
  job_outcome good;
  good.attempts = 2;
  good.result = "[1]";
  CHECK(output_line(7, good, "\"a\"") ==
        "{\"index\":7,\"status\":\"ok\",\"attempts\":2,\"result\":[1],\"error\":null,\"input\":\"a\"}\n");

  job_failure why;
  why.status = job_status::poisoned;
  why.text = "it \"killed\"\nthree workers";
  why.causes = {"SIGSEGV", "SIGSEGV", "alone: SIGSEGV"};
  why.attempts = 3;
  const std::string line = output_line(0, outcome_of(why), "null");
  CHECK(line.find('\n') == line.size() - 1);
  const json read = json::parse(line);
  CHECK(read["status"] == "poisoned");
  CHECK(read["attempts"] == 3);
  CHECK(read["result"].is_null());
  CHECK(read["error"]["text"] == why.text);
  CHECK(read["error"]["causes"] == json(why.causes));
  CHECK_FALSE(read["error"].contains("traceback"));
}

TEST_CASE("an exception keeps its type and traceback, and people see type and text") {
  job_failure why;
  why.type = "ValueError";
  why.text = "not a number";
  why.traceback = "file 1\nfile 2";
  const job_outcome outcome = outcome_of(why);
  CHECK(json::parse(outcome.error) ==
        json{{"type", "ValueError"}, {"text", "not a number"}, {"traceback", "file 1\nfile 2"}});
  CHECK(outcome.text == "ValueError: not a number");
}

TEST_CASE("only outcomes that another attempt can change are retried") {
  const auto again = [](job_status status) {
    job_failure why;
    why.status = status;
    return outcome_of(why).again;
  };
  CHECK(again(job_status::exception));
  CHECK(again(job_status::timed_out));
  CHECK(again(job_status::device));
  CHECK_FALSE(again(job_status::poisoned));
  CHECK_FALSE(again(job_status::cancelled));
  CHECK_FALSE(again(job_status::worker_lost));
  CHECK_FALSE(again(job_status::too_large));
}

TEST_CASE("a function that does not exist ends the run, and one that throws the same word does not") {
  job_failure why;
  why.type = "unknown_function";
  CHECK(outcome_of(why).ends_run);
  CHECK_FALSE(outcome_of(why).again);
  why.attempts = 1;
  CHECK_FALSE(outcome_of(why).ends_run);
}

TEST_CASE("each status is found by its name") {
  for (const job_status status : all_job_statuses) CHECK(status_named(name_of(status)) == status);
  CHECK_FALSE(status_named("okay"));
  CHECK_FALSE(status_named(""));
}

TEST_CASE("the signal of a failed job is that of its last death") {
  job_failure why;
  why.status = job_status::poisoned;
  why.causes = {"SIGSEGV", "alone: SIGRTMIN+3 (core dumped)"};
  CHECK(outcome_of(why).signal == "SIGRTMIN+3");
  CHECK(signal_in("SIGKILL").length() == 7);
  CHECK(signal_in("exit 3").empty());
}

TEST_CASE("text counts as UTF-8 only if a JSON string keeps every byte of it") {
  CHECK(is_utf8(""));
  CHECK(is_utf8(std::string("a\0\n", 3)));
  CHECK(is_utf8("\xEF\xBF\xBD \xc3\xa4"));
  CHECK_FALSE(is_utf8("\xc3"));
  CHECK_FALSE(is_utf8("\xed\xa0\x80"));  // a surrogate
}
