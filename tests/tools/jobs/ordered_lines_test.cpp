#include "tools/penstock/jobs/ordered_lines.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

using namespace penstock::cli;

TEST_CASE("lines come out in the order of the input, whatever order they arrive in") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    ordered_lines lines;
    std::vector<std::uint64_t> indices;
    for (std::uint64_t i = 0; i < 50; ++i) {
      if (random() % 4 != 0) indices.push_back(i);  // lines that are skipped leave gaps
    }
    for (const std::uint64_t i : indices) lines.expect(i);
    std::vector<std::uint64_t> arrivals = indices;
    std::ranges::shuffle(arrivals, random);
    std::vector<std::uint64_t> taken;
    for (const std::uint64_t i : arrivals) {
      lines.arrived(i, std::to_string(i));
      while (const auto line = lines.next()) taken.push_back(std::stoull(*line));
    }
    CHECK(taken == indices);
    CHECK(lines.size() == 0);
    CHECK(lines.bytes() == 0);
  }
}

TEST_CASE("a line waits for every line before it") {
  ordered_lines lines;
  CHECK_FALSE(lines.ready());
  lines.expect(3);
  lines.expect(5);
  lines.arrived(5, "five");
  CHECK_FALSE(lines.ready());
  CHECK_FALSE(lines.next());
  CHECK(lines.size() == 2);
  CHECK(lines.bytes() == 4);
  lines.arrived(3, "three");
  CHECK(lines.ready());
  CHECK(lines.next() == "three");
  CHECK(lines.bytes() == 4);
  CHECK(lines.next() == "five");
}

TEST_CASE("a line's memory is freed when the line is taken, and not before") {
  ordered_lines lines;
  lines.expect(0);
  lines.expect(1);
  auto held = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = held;
  lines.arrived(1, "one", std::move(held));
  CHECK(!watch.expired());
  lines.arrived(0, "zero");
  CHECK(lines.next() == "zero");
  CHECK(!watch.expired());
  CHECK(lines.next() == "one");
  CHECK(watch.expired());
}
