// The seed of a random test: printed before anything can fail, crash or hang, so that a run can be repeated.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace penstock::testing {

/// PENSTOCK_TEST_SEED, or a random one. `what` names the test.
inline std::uint64_t seed_of_this_run(const char* what) {
  const char* const given = std::getenv("PENSTOCK_TEST_SEED");  // NOLINT(concurrency-mt-unsafe)
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("%s: PENSTOCK_TEST_SEED=%llu\n", what, static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace penstock::testing
