// A fuzz target: libFuzzer's entry function and some seeds. With PENSTOCK_FUZZ=ON each is built as a
// libFuzzer program; otherwise fuzz_runner.cpp runs the same function for a short time, as a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// Valid inputs from which mutations start.
std::vector<std::string> fuzz_seeds();

/// Crashes, which is what fuzzers look for, unless the condition holds.
inline void must(bool condition) {
  if (!condition) std::abort();
}
