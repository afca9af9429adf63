#include "runtime/base/layout.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;

namespace {

const tensor_spec image{"image", dtype::uint8, {4, 6, 3}, tensor_role::image};
const tensor_spec label{"label", dtype::int64, {}, tensor_role::data};
const tensor_spec crop{"crop", dtype::int32, {4}, tensor_role::record};

}  // namespace

TEST_CASE("tensors do not overlap and start at aligned offsets") {
  const auto layout = lay_out(std::vector{image, label, crop}, 5);
  REQUIRE(layout);
  for (const tensor_place& place : layout->tensors) {
    CHECK(place.offset % layout_alignment == 0);
    CHECK(place.offset + place.row_bytes * 5 <= layout->bytes);
    for (const tensor_place& other : layout->tensors) {
      if (&other == &place) continue;
      const bool apart = place.offset + place.row_bytes * 5 <= other.offset ||
                         other.offset + other.row_bytes * 5 <= place.offset;
      CHECK(apart);
    }
  }
}

TEST_CASE("the largest tensor is last, so that a short batch needs only a short copy") {
  const auto layout = lay_out(std::vector{image, label, crop}, 100);
  REQUIRE(layout);
  CHECK(layout->tensors[0].offset > layout->tensors[1].offset);
  CHECK(layout->used_bytes(1) == layout->tensors[0].offset + 72);
  CHECK(layout->used_bytes(0) == 0);
}

TEST_CASE("payload counts neither padding nor records") {
  const auto layout = lay_out(std::vector{image, label, crop}, 8);
  REQUIRE(layout);
  CHECK(layout->payload_bytes(3) == 3 * (72 + 8));
}

TEST_CASE("an impossible description of a batch is refused with the reason") {
  const auto message = [](const std::vector<tensor_spec>& tensors, std::uint32_t batch_size) {
    const auto layout = lay_out(tensors, batch_size);
    return layout ? std::string() : layout.error().message;
  };
  CHECK(message({}, 1) == "the dataset describes no tensors");
  CHECK(message({label, label}, 1) == "two tensors are named 'label'");
  CHECK(message({{"", dtype::uint8, {}}}, 1) == "a tensor of the dataset has no name");
  CHECK(message({{"x", dtype::uint8, {3, 0}}}, 1) == "tensor 'x' has a dimension of 0");
  CHECK(message({label}, 0) == "a batch of 0 samples cannot be laid out");
  CHECK(message({{"x", dtype::uint8, {4}, tensor_role::image}}, 1) ==
        "image tensor 'x' is not uint8 [height, width, channels]");
  CHECK(message({{"x", dtype::float64, {4294967295U, 4294967295U, 4294967295U}}}, 1) ==
        "a sample of tensor 'x' is too large");
  CHECK(message({{"x", dtype::uint8, {1U << 30}}}, 4096).find("is larger than 1.00 TiB") !=
        std::string::npos);
}

TEST_CASE("the tensor of lengths follows the tensors of the description") {
  const tensor_spec tokens{"tokens", dtype::uint16, {10, 2}, tensor_role::data, length_rule::batch_maximum};
  const auto layout = lay_out(std::vector{tokens, label}, 5);
  REQUIRE(layout);
  CHECK(layout->described == 2);
  REQUIRE(layout->tensors.size() == 3);
  CHECK(layout->tensors[0].lengths == 2);
  CHECK(layout->tensors[0].entry_bytes() == 4);
  CHECK_FALSE(layout->tensors[1].lengths);
  CHECK(layout->tensors[2].spec == tensor_spec{"tokens_length", dtype::int64, {}});
}

TEST_CASE("lengths of a scalar, an image or a record are refused, and so is a name that is already used") {
  const auto with_lengths = [](tensor_spec spec) {
    spec.length = length_rule::fixed_maximum;
    return spec;
  };
  for (const tensor_spec& spec : {label, image, crop})
    CHECK_FALSE(lay_out(std::vector{with_lengths(spec)}, 5));
  const tensor_spec tokens{"tokens", dtype::uint8, {10}, tensor_role::data, length_rule::fixed_maximum};
  CHECK_FALSE(lay_out(std::vector{tokens, tensor_spec{"tokens_length", dtype::int64, {}}}, 5));
}
