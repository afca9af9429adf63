#include <penstock/tensor.hpp>

namespace penstock {

std::size_t size_of(dtype type) noexcept {
  switch (type) {
    case dtype::uint8:
    case dtype::int8: return 1;
    case dtype::uint16:
    case dtype::int16:
    case dtype::float16:
    case dtype::bfloat16: return 2;
    case dtype::uint32:
    case dtype::int32:
    case dtype::float32: return 4;
    case dtype::uint64:
    case dtype::int64:
    case dtype::float64: return 8;
  }
  return 0;
}

std::string_view name_of(dtype type) noexcept {
  switch (type) {
    case dtype::uint8: return "uint8";
    case dtype::int8: return "int8";
    case dtype::uint16: return "uint16";
    case dtype::int16: return "int16";
    case dtype::uint32: return "uint32";
    case dtype::int32: return "int32";
    case dtype::uint64: return "uint64";
    case dtype::int64: return "int64";
    case dtype::float16: return "float16";
    case dtype::bfloat16: return "bfloat16";
    case dtype::float32: return "float32";
    case dtype::float64: return "float64";
  }
  return "unknown";
}

std::uint64_t elements_of(std::span<const std::uint32_t> shape) noexcept {
  std::uint64_t product = 1;
  for (const std::uint32_t extent : shape) product *= extent;
  return product;
}

std::uint64_t bytes_of(const tensor_spec& spec) noexcept {
  return elements_of(spec.shape) * size_of(spec.type);
}

std::uint64_t tensor_view::bytes() const noexcept {
  std::uint64_t product = size_of(type);
  for (const std::uint64_t extent : shape) product *= extent;
  return product;
}

std::vector<std::uint64_t> tensor_view::strides() const {
  std::vector<std::uint64_t> steps(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) steps[i - 1] = steps[i] * shape[i];
  return steps;
}

}  // namespace penstock
