#include "tools/penstock/jobs/input_lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>
#include <vector>

using namespace penstock;
using namespace penstock::cli;

namespace {

std::vector<input_line> split(std::string_view text, std::size_t piece, std::size_t longest = 1000) {
  line_splitter lines(longest);
  std::vector<input_line> all;
  const auto take = [&] {
    while (auto line = lines.next()) all.push_back(std::move(*line));
  };
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    lines.feed(text.substr(0, piece));
    take();
  }
  lines.end();
  take();
  return all;
}

std::vector<std::string> texts_of(const std::vector<input_line>& lines) {
  std::vector<std::string> all;
  for (const input_line& line : lines) all.push_back(line.text);
  return all;
}

using texts = std::vector<std::string>;

struct pipe_pair {
  unique_fd out, in;
  pipe_pair() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    out.reset(ends[0]);
    in.reset(ends[1]);
  }
};

}  // namespace

TEST_CASE("lines are the same however their bytes are split") {
  const std::string text("a\n\nlong line\r\n\0x\nno end", 23);
  const texts expected{"a", "", "long line\r", std::string("\0x", 2), "no end"};
  for (std::size_t piece = 1; piece <= text.size(); ++piece) CHECK(texts_of(split(text, piece)) == expected);
}

TEST_CASE("lines are numbered from 1, and an input without lines has none") {
  const auto lines = split("x\ny\nz\n", 2);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].number == 1);
  CHECK(lines[2].number == 3);
  CHECK(split("", 1).empty());
  CHECK(texts_of(split("\n", 1)) == texts{""});
}

TEST_CASE("a byte order mark before the first line is not part of it") {
  for (std::size_t piece = 1; piece <= 8; ++piece)
    CHECK(texts_of(split("\xEF\xBB\xBF"
                         "1\n\xEF\xBB\xBF"
                         "2\n",
                         piece)) == texts{"1",
                                          "\xEF\xBB\xBF"
                                          "2"});
  CHECK_FALSE(split("\xEF\xBB\xBF"
                    "1\n",
                    9)[0]
                  .too_long());
}

TEST_CASE("the hash of a line depends on all of its bytes and on no others") {
  const auto whole = split("one line\nother line\none line\n", 1000);
  CHECK(whole[0].hash == whole[2].hash);
  CHECK(whole[0].hash != whole[1].hash);
  CHECK(split("one line", 3)[0].hash == whole[0].hash);
  // The hash depends on all bytes even if only the beginning of the line is kept.
  CHECK(split("one line\n", 3, 4)[0].hash == whole[0].hash);
  CHECK(split("one life\n", 3, 4)[0].hash != whole[0].hash);
}

TEST_CASE("only the beginning of an overlong line is kept, and the next line is complete") {
  const auto lines = split(std::string(1 << 20, 'x') + "\nabcd\nabcde\n", 4096, 4);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].too_long());
  CHECK(lines[0].text == "xxxx");
  CHECK(lines[0].bytes == 1 << 20);
  CHECK_FALSE(lines[1].too_long());
  CHECK(lines[1].text == "abcd");
  CHECK(lines[2].too_long());
}

TEST_CASE("a line from a pipe is available before the next one is written") {
  const pipe_pair pipe;
  const auto source = line_source::open("/proc/self/fd/" + std::to_string(pipe.out.get()), 100);
  REQUIRE(source);
  CHECK_FALSE((*source)->size());
  REQUIRE(::write(pipe.in.get(), "first\nsec", 9) == 9);
  CHECK((*source)->next()->value().text == "first");
  REQUIRE(::write(pipe.in.get(), "ond\n", 4) == 4);
  CHECK((*source)->next()->value().text == "second");
}

TEST_CASE("an interruption ends the wait for a line") {
  const pipe_pair pipe;
  const auto source = line_source::open("/proc/self/fd/" + std::to_string(pipe.out.get()), 100);
  REQUIRE(source);
  std::thread other([&] { (*source)->interrupt(); });
  CHECK_FALSE((*source)->next()->has_value());
  other.join();
  REQUIRE(::write(pipe.in.get(), "late\n", 5) == 5);
  CHECK_FALSE((*source)->next()->has_value());
}

TEST_CASE("an unreadable input is refused and named") {
  CHECK(line_source::open("/nowhere/items", 10).error().message.find("'/nowhere/items'") !=
        std::string::npos);
  CHECK(line_source::open("/tmp", 10).error().message.find("is a folder") != std::string::npos);
}

TEST_CASE("lines can end with a NUL byte, and then contain line feeds") {
  line_splitter lines(100, line_end::nul);
  lines.feed(std::string_view("a\nb\0\0c", 6));
  CHECK(lines.next()->text == "a\nb");
  CHECK(lines.next()->text.empty());
  CHECK_FALSE(lines.next());
  lines.end();
  CHECK(lines.next()->text == "c");
}
