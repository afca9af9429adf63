// Random numbers for property tests of sample orders, from a printed seed.
#pragma once

#include "tests/random_seed.hpp"

#include <cstdint>
#include <random>

namespace penstock::testing {

struct dice {
  std::mt19937_64 random;
  /// `what` names the test in the line with the seed, which PENSTOCK_TEST_SEED sets.
  explicit dice(const char* what) {
    random.seed(seed_of_this_run(what));
  }
  std::uint64_t operator()(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
  }
};

}  // namespace penstock::testing
