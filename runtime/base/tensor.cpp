#include <penstock/error.hpp>
#include <penstock/tensor.hpp>

#include <fmt/core.h>

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

namespace detail {
namespace {

constexpr bool is_floating(dtype type) {
  return type == dtype::float16 || type == dtype::bfloat16 || type == dtype::float32 ||
         type == dtype::float64;
}

constexpr bool is_signed(dtype type) {
  return type == dtype::int8 || type == dtype::int16 || type == dtype::int32 || type == dtype::int64;
}

std::string name_of(element_type wanted) {
  switch (wanted.kind) {
    case element_kind::boolean: return "bool";
    case element_kind::character: return "char";
    case element_kind::signed_integer: return fmt::format("int{}", 8 * wanted.size);
    case element_kind::unsigned_integer: return fmt::format("uint{}", 8 * wanted.size);
    case element_kind::floating: return fmt::format("float{}", 8 * wanted.size);
    case element_kind::opaque: break;
  }
  return fmt::format("a type of {} bytes", wanted.size);
}

}  // namespace

bool is_element(dtype type, element_type wanted) noexcept {
  if (wanted.size != size_of(type)) return false;
  switch (wanted.kind) {
    case element_kind::boolean: return type == dtype::uint8;
    case element_kind::character: return true;
    case element_kind::signed_integer: return is_signed(type);
    case element_kind::unsigned_integer:
      return type == dtype::float16 || type == dtype::bfloat16 || (!is_signed(type) && !is_floating(type));
    case element_kind::floating: return is_floating(type);
    case element_kind::opaque: return true;
  }
  return false;
}

void require_element(std::string_view tensor, dtype type, element_type wanted) {
  if (is_element(type, wanted)) return;
  throw error({errc::usage,
               fmt::format("tensor '{}' is {}, but the program accesses it as {}", tensor,
                           penstock::name_of(type), name_of(wanted)),
               0});
}

}  // namespace detail

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

void tensor_view::require_host() const {
  if (on_host) return;
  throw error({errc::usage,
               fmt::format("tensor '{}' is on the device: copy it to the host with Batch::read_back", name),
               0});
}

std::vector<std::uint64_t> tensor_view::strides() const {
  std::vector<std::uint64_t> steps(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) steps[i - 1] = steps[i] * shape[i];
  return steps;
}

}  // namespace penstock
