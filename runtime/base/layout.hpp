// The layout of a batch in a slot: one region per tensor, rows back to back, small tensors first so that a
// short batch is one contiguous copy. Pure; worker, device and sinks compute the same layout from the same
// description.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/tensor.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace penstock {

struct tensor_place {
  tensor_spec spec;
  std::uint64_t row_bytes = 0;  ///< bytes of one sample
  std::uint64_t offset = 0;     ///< offset of row 0 in the slot; a multiple of layout_alignment
  std::optional<std::size_t> lengths =
      std::nullopt;  ///< for a tensor with a length_rule: where its lengths are

  /// Bytes of one entry along the first axis; only for tensors with at least one axis.
  [[nodiscard]] std::uint64_t entry_bytes() const noexcept { return row_bytes / spec.shape.front(); }
};

/// Suits DMA and vector loads. Wastes at most 255 bytes per tensor.
inline constexpr std::uint64_t layout_alignment = 256;

struct batch_layout {
  std::uint32_t rows_max = 0;         ///< the batch size
  std::vector<tensor_place> tensors;  ///< in the order of the description, then the added length tensors
  std::size_t described = 0;          ///< how many of the tensors are in the description
  std::uint64_t bytes = 0;            ///< size of a slot that holds a full batch

  /// Bytes from the beginning of the slot to the end of the last row of a batch with this many rows.
  [[nodiscard]] std::uint64_t used_bytes(std::uint32_t rows) const noexcept;
  /// Tensor bytes of such a batch without padding.
  [[nodiscard]] std::uint64_t payload_bytes(std::uint32_t rows) const noexcept;
  [[nodiscard]] std::optional<std::size_t> index_of(std::string_view name) const noexcept;
};

/// Adds an int64 tensor "NAME_length" for every tensor with a length_rule. Refuses (errc::dataset) an
/// empty list, a repeated or empty name, a zero dimension, an image that is not uint8 [h, w, c], a
/// length_rule on a tensor without an axis or with a role other than data, and sizes beyond 2^40 bytes per
/// batch.
result<batch_layout> lay_out(std::span<const tensor_spec> tensors, std::uint32_t batch_size);

}  // namespace penstock
