// Typed access to tensors: what is accepted, and the error messages otherwise.
#include <penstock/error.hpp>
#include <penstock/tensor.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

using namespace penstock;

namespace {

struct half {
  std::uint16_t bits;
};

template <class T>
std::string refusal(const tensor_view& tensor) {
  try {
    static_cast<void>(tensor.host_as<T>());
    return {};
  } catch (const error& e) {
    return e.code() == errc::usage ? e.what() : "not a usage error";
  }
}

}  // namespace

TEST_CASE("elements are accessible as the type of their dtype, as raw bits or as a class of their size") {
  CHECK(is_element_of<float>(dtype::float32));
  CHECK(is_element_of<double>(dtype::float64));
  CHECK(is_element_of<std::int64_t>(dtype::int64));
  CHECK(is_element_of<long long>(dtype::int64));
  CHECK(is_element_of<unsigned char>(dtype::uint8));
  CHECK(is_element_of<char>(dtype::uint8));
  CHECK(is_element_of<char>(dtype::int8));
  CHECK(is_element_of<bool>(dtype::uint8));
  CHECK(is_element_of<std::byte>(dtype::int8));
  CHECK(is_element_of<std::uint16_t>(dtype::float16));
  CHECK(is_element_of<std::uint16_t>(dtype::bfloat16));
  CHECK(is_element_of<half>(dtype::bfloat16));
}

TEST_CASE("elements are not accessible as a number of another size or kind") {
  CHECK_FALSE(is_element_of<double>(dtype::float32));
  CHECK_FALSE(is_element_of<float>(dtype::int32));
  CHECK_FALSE(is_element_of<std::int32_t>(dtype::float32));
  CHECK_FALSE(is_element_of<std::uint32_t>(dtype::int32));
  CHECK_FALSE(is_element_of<std::int32_t>(dtype::uint32));
  CHECK_FALSE(is_element_of<std::uint32_t>(dtype::float32));
  CHECK_FALSE(is_element_of<std::int16_t>(dtype::float16));
  CHECK_FALSE(is_element_of<bool>(dtype::int8));
  CHECK_FALSE(is_element_of<std::byte>(dtype::uint16));
  CHECK_FALSE(is_element_of<half>(dtype::float32));
}

TEST_CASE("a tensor on the host is readable as its own type, and the error for another type names both") {
  std::array<float, 6> values{0, 1, 2, 3, 4, 5};
  const tensor_view tensor{"xyz", dtype::float32, {2, 3}, values.data(), true};
  const auto read = tensor.host_as<float>();
  CHECK(read.size() == 6);
  CHECK(read[5] == 5);
  CHECK(refusal<double>(tensor) == "tensor 'xyz' is float32, but the program accesses it as float64");
  CHECK(refusal<half>(tensor) == "tensor 'xyz' is float32, but the program accesses it as a type of 2 bytes");
}

TEST_CASE("a tensor on the device is not readable from the host") {
  const tensor_view tensor{"image", dtype::uint8, {1}, nullptr};
  CHECK(refusal<std::uint8_t>(tensor) ==
        "tensor 'image' is on the device: copy it to the host with Batch::read_back");
}
