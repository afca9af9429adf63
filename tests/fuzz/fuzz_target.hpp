// What a fuzz target is: libFuzzer's entry function and some inputs to begin with. Built with
// PENSTOCK_FUZZ=ON each is a libFuzzer program; otherwise fuzz_runner.cpp drives the same function for a
// short while, as a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// Good inputs, which mutations begin from.
std::vector<std::string> fuzz_seeds();
