// Interpretation of [gpu] device.
#include "runtime/device/device.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::device;

TEST_CASE("a device that this build or machine lacks is refused and named") {
  CHECK(make_device("host"));
  CHECK(make_device("auto"));
  const auto nonsense = make_device("cuda:x");
  REQUIRE_FALSE(nonsense);
  CHECK(nonsense.error().message.find("cuda:x") != std::string::npos);
}
