// Command lines and their outcomes as bytes.
#include "actors/protocol/command_job.hpp"

#include <catch2/catch_test_macros.hpp>

#include <random>

using namespace penstock;
using namespace penstock::protocol;

TEST_CASE("a command line and its outcome survive encoding") {
  for (const command_job& job :
       {command_job{{"true"}}, command_job{{"a b", "", "\xff\n"}, 0}, command_job{{"x"}, ~0ULL, 7},
        command_job{{"x"}, 1, 2, {"A=b", "C"}, "/tmp/results/7"}})
    CHECK(command_job_from(as_bytes(job)).value() == job);
  for (const command_outcome& one :
       {command_outcome{}, command_outcome{255, {"out", 3}, {std::string("\0e", 2), 1ULL << 40}, 12},
        command_outcome{-1, {}, {}}})
    CHECK(command_outcome_from(as_bytes(one)).value() == one);
}

TEST_CASE("a command line that could not be executed unchanged is refused") {
  CHECK(command_job_from(as_bytes(command_job{{}})).error().message == "a command line without a program");
  CHECK_FALSE(command_job_from(as_bytes(command_job{{""}})));
  CHECK(command_job_from(as_bytes(command_job{{"x", std::string("a\0b", 3)}}))
            .error()
            .message.find("zero byte") != std::string::npos);
  CHECK_FALSE(
      command_job_from(as_bytes(command_job{.arguments = {"x"}, .environment = {std::string("A=\0", 3)}})));
  CHECK_FALSE(
      command_job_from(as_bytes(command_job{.arguments = {"x"}, .output_files = std::string("/a\0", 3)})));
  CHECK_FALSE(
      command_job_from(as_bytes(command_job{std::vector<std::string>(command_job::arguments_max + 1, "x")})));
}

TEST_CASE("an outcome that claims to keep more output than was written is refused") {
  CHECK_FALSE(command_outcome_from(as_bytes(command_outcome{0, {"four", 3}, {}})));
}

TEST_CASE("truncated, extra and changed bytes are refused or parsed as something valid") {
  std::mt19937 random(20261122);
  const auto job = as_bytes(command_job{{"prog", "argument", "another"}, 1, 2, {"A=b"}, "/x"});
  const auto outcome = as_bytes(command_outcome{1, {"out", 3}, {"err", 30}});
  for (std::size_t cut = 0; cut < job.size(); ++cut) CHECK_FALSE(command_job_from(std::span(job).first(cut)));
  for (std::size_t cut = 0; cut < outcome.size(); ++cut)
    CHECK_FALSE(command_outcome_from(std::span(outcome).first(cut)));
  auto longer = job;
  longer.push_back(std::byte{0});
  CHECK_FALSE(command_job_from(longer));
  CHECK_FALSE(command_outcome_from(job));
  CHECK_FALSE(command_job_from(outcome));
  for (int i = 0; i < 50'000; ++i) {
    auto changed = random() % 2 == 0 ? job : outcome;
    changed[random() % changed.size()] = static_cast<std::byte>(random());
    if (const auto read = command_job_from(changed)) REQUIRE(as_bytes(*read) == changed);
    if (const auto read = command_outcome_from(changed)) REQUIRE(as_bytes(*read) == changed);
  }
}
