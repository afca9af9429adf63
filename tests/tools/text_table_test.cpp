// Text on a narrow terminal is continued on the next line instead of cut.
#include "tools/penstock/text_table.hpp"

#include "tools/penstock/watch/session_tables.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <sstream>

using namespace penstock::cli;
using json = nlohmann::ordered_json;

namespace {

std::size_t widest_line(const std::string& text) {
  std::size_t most = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) most = std::max(most, columns_of(line));
  return most;
}

}  // namespace

TEST_CASE("text wraps between words, and inside a word that is longer than a line") {
  CHECK(wrapped("one two three", 8, 2) == "one two\n  three");
  CHECK(wrapped("one two three", 13, 2) == "one two three");
  CHECK(wrapped("one two three", 0, 2) == "one two three");
  CHECK(wrapped("", 8, 2).empty());
  CHECK(wrapped("/very/long/path/of/a/photo", 20, 4) == "/very/long/path/of/a\n    /photo");
  CHECK(wrapped("  /usr/lib/a_long_module.so", 12, 2) == "  /usr/lib/a\n  _long_module.so");  // the indentation does not become a line of its own
  CHECK(wrapped("aaaa\xC3\xA4\xC3\xA4 b", 6, 0) == "aaaa\xC3\xA4\xC3\xA4\nb");
}

TEST_CASE("a hidden column takes no space") {
  CHECK(text_table({{"a"}, {.title = "long title", .shown = false}, {"c"}}, {{"1", "2", "3"}}, 6) == "a  c\n1  3\n");
}

TEST_CASE("hanging text stays to the right of its column, or goes below if there is no space") {
  CHECK("kind: " + hanging("it was stopped by its program", 27, 6) == "kind: it was stopped by its\n      program");
  CHECK("kind: " + hanging("it was stopped by its program", 20, 6) == "kind: \n    it was stopped\n    by its program");
}

TEST_CASE("a cell that wraps is complete, and the columns before and after it stay aligned") {
  const std::string text = text_table({{"id", column_side::right}, {.title = "why", .wraps = true}, {"n"}},
                                      {{"1", "/photos/a/very/long/name.jpg", "x"}, {"2", "short", "y"}}, 23);
  CHECK(text == "id  why               n\n 1  /photos/a/very/l  x\n    ong/name.jpg\n 2  short             y\n");
}

TEST_CASE("on 80 columns no event is cut, and its text stays under its column") {
  const json e{{"time", "2026-11-26T18:39:44.123456Z"}, {"worker", 0}, {"kind", "worker_died"},
               {"text", "worker 0 (pid 10395) ended: SIGSEGV, while running job 78 (sample 1237)"}};
  const std::string text = event_for_people(e, 80);
  CHECK(widest_line(text) <= 80);
  CHECK(text == "11-26 18:39:44  worker/0   worker_died         worker 0 (pid 10395) ended:\n" + std::string(47, ' ') +
                    "SIGSEGV, while running job 78\n" + std::string(47, ' ') + "(sample 1237)");
  CHECK(event_for_people(e, 0).starts_with("2026-11-26 18:39:44.123  worker/0   worker_died         worker 0 (pid 10395) ended: SIGSEGV, while"));
}

TEST_CASE("on 80 columns the table of deaths omits the pid before it shortens a path") {
  const json death{{"worker", 12}, {"pid", 1234567}, {"cause", "signal"}, {"signal", "SIGSEGV"}, {"code", nullptr}, {"ignored_stop_seconds", nullptr},
                   {"time", "2026-11-26T18:39:44.123456Z"}, {"lived_seconds", 12.5}, {"sample", 1234567}, {"attempt", 2},
                   {"path", "/data/photographs/class_17/ILSVRC2012_val_00000259.jpg"}};
  const std::string text = deaths_for_people(json::array({death}), penstock::work_kind::samples, 80);
  INFO(text);
  CHECK(widest_line(text) <= 80);
  CHECK(text.find("SIGSEGV") != std::string::npos);
  CHECK(text.find("1234567  /data/photographs/class_") != std::string::npos);
  CHECK(text.find("pid") == std::string::npos);
  std::string whole;
  for (const char c : text)
    if (c != ' ' && c != '\n') whole += c;
  CHECK(whole.find("00000259.jpg") != std::string::npos);
}
