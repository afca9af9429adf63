#include "runtime/process/log_store.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace penstock;
using namespace penstock::process;
using namespace std::chrono_literals;

namespace {

std::vector<std::string> texts(const log_answer& answer) {
  std::vector<std::string> all;
  for (const log_line& line : answer.lines) all.push_back(line.text);
  return all;
}

using strings = std::vector<std::string>;

}  // namespace

TEST_CASE("a place shows its process's output and, separately, the output of the previous process") {
  log_store book;
  book.begin("worker/0", 1);
  book.wrote("worker/0", 1, "first", 5);
  CHECK(texts(book.read({"worker/0", false, {}, {}})) == strings{"first"});
  CHECK(book.read({"worker/0", true, {}, {}}).lines.empty());
  book.ended("worker/0");
  // Between two processes there is no running one to show.
  CHECK(texts(book.read({"worker/0", false, {}, {}})) == strings{"first"});
  book.begin("worker/0", 2);
  book.wrote("worker/0", 2, "second", 6);
  CHECK(texts(book.read({"worker/0", false, {}, {}})) == strings{"second"});
  const auto previous = book.read({"worker/0", true, {}, {}});
  CHECK(texts(previous) == strings{"first"});
  CHECK(previous.lines.front().incarnation == 1);
  CHECK(previous.lines.front().unix_ms == 5);
}

TEST_CASE("a process that writes nothing does not displace the output of an earlier one") {
  log_store book;
  book.begin("worker/0", 1);
  book.wrote("worker/0", 1, "stack", 0);
  book.ended("worker/0");
  book.begin("worker/0", 2);
  book.ended("worker/0");
  CHECK(texts(book.read({"worker/0", false, {}, {}})) == strings{"stack"});
  book.begin("worker/0", 3);
  const auto previous = book.read({"worker/0", true, {}, {}});
  CHECK(texts(previous) == strings{"stack"});
  CHECK(previous.lines.front().incarnation == 1);
}

TEST_CASE("lines of several places are in the order in which they were written") {
  log_store book;
  book.begin("worker/0", 1);
  book.begin("worker/1", 1);
  book.wrote("worker/1", 1, "a", 0);
  book.wrote("worker/0", 1, "b", 0);
  book.wrote("worker/1", 1, "c", 0);
  CHECK(texts(book.read({})) == strings{"a", "b", "c"});
  CHECK(texts(book.read({"", false, 2, {}})) == strings{"b", "c"});
  CHECK(texts(book.read({"worker/1", false, {}, {}})) == strings{"a", "c"});
}

TEST_CASE("the last 64 KiB of a flood are kept, and followers learn how much was dropped") {
  log_store book;
  book.begin("worker/0", 1);
  book.wrote("worker/0", 1, "begin", 0);
  const auto cursor = book.read({}).seen;
  constexpr int flood = 100'000;
  for (int i = 0; i < flood; ++i) book.wrote("worker/0", 1, "line " + std::to_string(i), 0);
  const auto rest = book.read({"worker/0", false, {}, cursor});
  REQUIRE_FALSE(rest.lines.empty());
  CHECK(rest.lines.back().text == "line 99999");
  CHECK(rest.lines.front().dropped + rest.lines.size() == flood);
  std::size_t bytes = 0;
  for (const log_line& line : rest.lines) bytes += line.text.size();
  CHECK(bytes < log_store::kept_bytes);
}

TEST_CASE("followers see the last output of a process and the first output of its successor") {
  log_store book;
  book.begin("worker/0", 1);
  const auto cursor = book.read({}).seen;
  book.wrote("worker/0", 1, "last", 0);
  book.ended("worker/0");
  book.begin("worker/0", 2);
  book.wrote("worker/0", 2, "first", 0);
  const auto news = book.read({"worker/0", false, {}, cursor});
  CHECK(texts(news) == strings{"last", "first"});
  CHECK(news.lines[0].dropped == 0);
  CHECK(book.read({"worker/0", false, {}, news.seen}).lines.empty());
}

TEST_CASE("lines beyond what a person can read in a second are counted but not passed on") {
  log_store book;
  book.begin("worker/0", 1);
  steady_time now{};
  std::uint64_t passed = 0;
  for (int i = 0; i < 2000; ++i) passed += book.pass("worker/0", now).pass ? 1 : 0;
  CHECK(passed == static_cast<std::uint64_t>(log_store::passed_burst));
  now += 1s;
  const auto next = book.pass("worker/0", now);
  CHECK(next.pass);
  CHECK(next.dropped == 1500);
  CHECK(book.pass("worker/0", now).dropped == 0);
  CHECK(book.ended("worker/0") == 0);
}
