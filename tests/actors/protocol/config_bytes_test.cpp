#include "actors/protocol/config_bytes.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::protocol;

namespace {

config unusual() {
  config c;
  c.name = "x";
  c.dataset.path = "/data/caf\xe9\n";
  c.dataset.faults = {{17, fault_kind::hang, 0, 0.25}, {3, fault_kind::raise, 2, 1.0}};
  c.dataset.shape = {3, 4};
  c.dataset.options = {{"a", "1"}, {"b", ""}};
  c.image.ratio = {0.1, 1.0 / 3.0};
  c.loader.workers = 7;
  c.loader.slot_bytes = byte_size{123};
  c.sampler.rank.reset();
  c.loader.restart.backoff.max = std::chrono::nanoseconds(1);
  return c;
}

}  // namespace

TEST_CASE("a config arrives bit for bit as it was sent") {
  CHECK(config_from_bytes(config_as_bytes(config())) == config());
  CHECK(config_from_bytes(config_as_bytes(unusual())) == unusual());
}

TEST_CASE("a config with missing or extra bytes is refused") {
  const std::string bytes = config_as_bytes(unusual());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_FALSE(config_from_bytes(bytes.substr(0, length)));
  CHECK_FALSE(config_from_bytes(bytes + "x"));
  CHECK_FALSE(config_from_bytes(std::string(1000, '\xff')));
}
