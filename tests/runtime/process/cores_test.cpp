#include "runtime/process/cores.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::process;

TEST_CASE("lists of cores are read and written in the kernel's format") {
  CHECK(parse_core_list("0-3,8,10-11\n") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
  CHECK(parse_core_list("").empty());
  CHECK(parse_core_list("\n").empty());
  CHECK(parse_core_list("3-1").empty());
  CHECK(parse_core_list("a").empty());
  CHECK(parse_core_list("1,").empty());
  CHECK(parse_core_list("1-2-3").empty());
  CHECK(parse_core_list("70000").empty());
  CHECK(core_list({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11");
  CHECK(core_list({}).empty());
}
