#include "runtime/device/reference_jpeg.hpp"

#include "runtime/dataset/picture/jpeg_check.hpp"
#include "runtime/dataset/picture/probe.hpp"

#include <catch2/catch_test_macros.hpp>

#include <span>

using namespace penstock;
using namespace penstock::device;

TEST_CASE("the reference picture is a plain and valid JPEG, with the same bytes every time") {
  const auto file = reference_jpeg();
  const auto bytes = std::as_bytes(std::span(file));
  CHECK(jpeg_checker().plain_bytes(bytes) == file.size());
  const auto info = probe(bytes);
  REQUIRE(info);
  CHECK(info->stored.width == reference_side);
  CHECK(info->stored.height == reference_side);
  CHECK(reference_jpeg() == file);
}
