// The shape of data: element types, what one sample's tensors look like, and views of a batch's tensors. Used
// by dataset authors, by consumers of batches and by every stage between them.
#pragma once

#include <penstock/export.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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
/// "uint8", "bfloat16", ...: the spelling of config files and reports.
PENSTOCK_API std::string_view name_of(dtype type) noexcept;

/// What becomes of a tensor on its way to the device.
enum class tensor_role : std::uint8_t {
  data,    ///< copied to the device as it is
  image,   ///< uint8 [height, width, channels]: the device converts, normalises and flips it (see [gpu])
  record,  ///< facts about the sample for sinks ("crop", "flip"): not part of the batch on the device or its
           ///< digest
};

/// Whether samples may have fewer entries along their first axis than the shape says. What a sample leaves
/// unused is filled with zeros, and the batch has one tensor more, "NAME_length": int64, the entries of each
/// row. For tensors of role data.
enum class length_rule : std::uint8_t {
  exact,          ///< no: every sample has exactly this shape
  fixed_maximum,  ///< yes: the shape's first number is the maximum, and every batch has it
  batch_maximum,  ///< yes: a batch has the first number of its longest sample (0 if all are empty)
};

/// One tensor of one sample. The batch axis is not part of the shape; a scalar has an empty one.
struct tensor_spec {
  std::string name{};
  dtype type = dtype::uint8;
  std::vector<std::uint32_t> shape{};
  tensor_role role = tensor_role::data;
  length_rule length = length_rule::exact;

  bool operator==(const tensor_spec&) const = default;
};

/// Elements of one sample (1 for a scalar).
PENSTOCK_API std::uint64_t elements_of(std::span<const std::uint32_t> shape) noexcept;
/// Bytes of one sample of this tensor.
PENSTOCK_API std::uint64_t bytes_of(const tensor_spec& spec) noexcept;

/// A tensor of a whole batch somewhere in memory: first axis = rows, C order, no padding between rows.
/// Borrows the memory; `data` is a device pointer in a device batch and a host pointer in a copy that was
/// read back.
struct tensor_view {
  std::string_view name;
  dtype type = dtype::uint8;
  std::vector<std::uint64_t> shape;
  void* data = nullptr;

  [[nodiscard]] PENSTOCK_API std::uint64_t bytes() const noexcept;
  /// Elements between neighbours along each axis.
  [[nodiscard]] PENSTOCK_API std::vector<std::uint64_t> strides() const;
};

}  // namespace penstock
