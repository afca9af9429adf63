// Names for the frames of a death record, in a module that was stripped: the C++ library.
#include "tools/penstock/watch/stack_names.hpp"

#include <catch2/catch_test_macros.hpp>
#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdint>
#include <exception>

using namespace penstock;

TEST_CASE(
    "a frame of a module without debug information keeps its offset and is not named after a nearby function") {
  Dl_info here{};
  REQUIRE(::dladdr(reinterpret_cast<const void*>(&std::terminate), &here) != 0);
  const auto offset = reinterpret_cast<std::uintptr_t>(&std::terminate) - reinterpret_cast<std::uintptr_t>(here.dli_fbase);
  for (const std::uintptr_t further : {0U, 2U, 5000U}) {
    const std::string frame = fmt::format("{}+{:#x}", here.dli_fname, offset + further);
    const std::string exact = frame + " in std::terminate()";  // as found by the dying process
    const auto named = cli::name_frames({frame, exact});
    const bool has_lines = named[0].find(" at ") != std::string::npos;  // this machine has its debug information
    if (has_lines) continue;
    CHECK(named[0] == frame);
    CHECK(named[1] == exact);
  }
}
