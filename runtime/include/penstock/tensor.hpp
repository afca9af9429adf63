// The shape of data: element types, descriptions of one sample's tensors, and views of a batch's tensors.
// Used by dataset authors, consumers of batches and every stage between them.
#pragma once

#include <penstock/export.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace penstock {

enum class dtype : std::uint8_t {
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  uint64,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
};

/// Bytes of one element.
PENSTOCK_API std::size_t size_of(dtype type) noexcept;
/// The spelling in config files and reports: "uint8", "bfloat16", ...
PENSTOCK_API std::string_view name_of(dtype type) noexcept;

/// How a tensor gets to the device.
enum class tensor_role : std::uint8_t {
  data,   ///< copied to the device unchanged
  image,  ///< uint8 [height, width, channels]: the device converts, normalises and flips it (see [gpu])
  record,  ///< facts about the sample for sinks ("crop", "flip"): not part of the batch on the device or of its
           ///< digest
  encoded,  ///< only in built-in datasets: a file that the device decodes into the row of the image tensor
};

/// Whether samples may have fewer entries along their first axis than the shape says. The unused rest is
/// filled with zeros, and the batch has an extra tensor "NAME_length": int64, the number of entries in each
/// row. For tensors of role data.
enum class length_rule : std::uint8_t {
  exact,          ///< every sample has exactly this shape
  fixed_maximum,  ///< shorter samples are allowed; every batch has the shape's first number, which is the maximum
  batch_maximum,  ///< shorter samples are allowed; a batch's first number is the length of its longest sample (0 if all are empty)
};

/// A tensor of one sample. The batch axis is not part of the shape; a scalar has an empty one.
struct tensor_spec {
  std::string name{};
  dtype type = dtype::uint8;
  std::vector<std::uint32_t> shape{};
  tensor_role role = tensor_role::data;
  length_rule length = length_rule::exact;

  bool operator==(const tensor_spec&) const = default;
};

namespace detail {

enum class element_kind : std::uint8_t {
  boolean,
  character,
  signed_integer,
  unsigned_integer,
  floating,
  opaque
};

/// The properties that decide whether memory of a dtype may be accessed as a C++ type.
struct element_type {
  element_kind kind = element_kind::opaque;
  std::size_t size = 0;
};

template <class T>
constexpr element_type element_type_of() noexcept {
  static_assert(std::is_trivially_copyable_v<T>, "tensors hold plain bytes");
  using plain = std::remove_cv_t<T>;
  if (std::is_same_v<plain, bool>) return {element_kind::boolean, sizeof(T)};
  if (std::is_same_v<plain, char>) return {element_kind::character, sizeof(T)};
  if (std::is_floating_point_v<plain>) return {element_kind::floating, sizeof(T)};
  if (std::is_integral_v<plain>)
    return {std::is_signed_v<plain> ? element_kind::signed_integer : element_kind::unsigned_integer,
            sizeof(T)};
  return {element_kind::opaque, sizeof(T)};
}

/// Throws error (errc::usage) that names the tensor, its dtype and `wanted` unless is_element_of(wanted,
/// type).
PENSTOCK_API void require_element(std::string_view tensor, dtype type, element_type wanted);
PENSTOCK_API bool is_element(dtype type, element_type wanted) noexcept;

}  // namespace detail

/// Whether the elements of a tensor of this dtype may be accessed as T: the same size and the same kind of
/// number. float16 and bfloat16, for which C++20 has no type, may be accessed as std::uint16_t (their bits)
/// or as a class of two bytes such as __half. A class or enum of the element's size (std::byte) is always
/// accepted, char for int8 and uint8, bool for uint8.
template <class T>
[[nodiscard]] bool is_element_of(dtype type) noexcept {
  return detail::is_element(type, detail::element_type_of<T>());
}

/// Elements of one sample (1 for a scalar).
PENSTOCK_API std::uint64_t elements_of(std::span<const std::uint32_t> shape) noexcept;
/// Bytes of one sample of this tensor.
PENSTOCK_API std::uint64_t bytes_of(const tensor_spec& spec) noexcept;

/// A tensor of a whole batch in host or device memory: the first axis is the rows, C order, no padding
/// between rows. Borrows the memory.
struct tensor_view {
  std::string_view name;
  dtype type = dtype::uint8;
  std::vector<std::uint64_t> shape;
  void* data = nullptr;  ///< a host pointer if `on_host`, else a device pointer
  /// The host can read `data`: tensors of the host device, records, and copies that were read back.
  bool on_host = false;

  [[nodiscard]] PENSTOCK_API std::uint64_t bytes() const noexcept;
  /// Elements between neighbours along each axis.
  [[nodiscard]] PENSTOCK_API std::vector<std::uint64_t> strides() const;

  /// All elements, row after row. Throws error (errc::usage) if they are on a device (Batch::read_back copies
  /// them to the host) or may not be accessed as T (is_element_of). Valid as long as the memory: for a batch,
  /// until its release.
  template <class T>
  [[nodiscard]] std::span<const T> host_as() const {
    require_host();
    detail::require_element(name, type, detail::element_type_of<T>());
    return {static_cast<const T*>(data), static_cast<std::size_t>(bytes() / sizeof(T))};
  }

 private:
  PENSTOCK_API void require_host() const;
};

}  // namespace penstock
