// Random numbers for property tests of orders, from a seed that is printed.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>

namespace penstock::testing {

struct dice {
  std::mt19937_64 random;
  /// `what` is tried: for the line with the seed, which PENSTOCK_TEST_SEED sets.
  explicit dice(std::string_view what) {
    const char* given = std::getenv("PENSTOCK_TEST_SEED");  // NOLINT(concurrency-mt-unsafe)
    const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    fmt::print("{}: PENSTOCK_TEST_SEED={}\n", what, seed);
    random.seed(seed);
  }
  std::uint64_t operator()(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
  }
};

}  // namespace penstock::testing
