// What happens to a batch between its slot and its device buffer: which tensors are copied unchanged, which
// are converted, and where the results are. Pure; the host device and the CUDA device follow the same plan.
#pragma once

#include "runtime/base/layout.hpp"
#include "runtime/base/result.hpp"

#include <penstock/config.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::device {

struct image_settings {
  image_layout layout = image_layout::nchw;
  dtype type = dtype::float16;
  rgb_values mean{};
  rgb_values std{1, 1, 1};
};

/// The layout of a tensor in a device buffer: rows back to back from `offset`.
struct device_tensor {
  std::string name;
  dtype type = dtype::uint8;
  std::vector<std::uint32_t> shape;  ///< shape of one row
  std::uint64_t row_bytes = 0;
  std::uint64_t offset = 0;
  /// The offset of its lengths in the slot, for a tensor that is trimmed per batch.
  std::optional<std::uint64_t> lengths;
};

/// Rows that are copied unchanged.
struct copy_step {
  std::uint64_t from = 0;  ///< offset in the slot
  std::uint64_t to = 0;    ///< offset in the device buffer
  std::uint64_t row_bytes = 0;
  std::size_t tensor = 0;  ///< index in transfer_plan::tensors
};

/// The actual extents of a batch of variable size: for each tensor of the plan, the first dimension of its
/// rows. Empty for plans that trim nothing. The worker has closed the gaps between its rows.
using batch_extents = std::vector<std::uint32_t>;

/// y = fma(x, scale, shift) in float32, rounded to nearest even to the output type; uint8 stays x.
/// scale = 1 / (255 std) and shift = -mean / std, computed in double and rounded once (rule S5).
struct convert_step {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;  ///< 1 or 3 unless the output is uint8
  image_layout layout = image_layout::nchw;
  dtype type = dtype::float16;
  std::array<float, 3> scale{};
  std::array<float, 3> shift{};
  /// Offset in the slot of the flip flags, one byte per row: nonzero mirrors that row from left to right.
  std::optional<std::uint64_t> flip_flags;
};

/// Encoded pictures, which the device decodes into the rows of the image tensor, in its raw copy of the slot.
struct decode_step {
  std::uint64_t from = 0;       ///< offset of the encoded rows in the slot
  std::uint64_t row_bytes = 0;  ///< bytes of one encoded row
  std::uint64_t to = 0;         ///< offset of the image tensor in the slot
  std::uint64_t to_row_bytes = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
};

struct transfer_plan {
  batch_layout slot;
  std::vector<device_tensor> tensors;  ///< all but the records, in the order of the description
  std::vector<copy_step> copies;
  std::vector<convert_step> conversions;
  std::optional<decode_step> decode;
  std::uint64_t buffer_bytes = 0;  ///< size of the results of a full batch
  bool staged = false;             ///< the raw slot is also copied to the device, for the kernel to read

  [[nodiscard]] std::uint64_t staging_bytes() const noexcept {
    if (decode) return decode->from;  // encoded pictures are last in the slot, and the decoder reads them from there
    return staged ? slot.bytes : 0;
  }

  /// Reads the lengths from the slot of a batch with `rows` rows.
  [[nodiscard]] batch_extents extents_of(std::span<const std::byte> slot_bytes, std::uint32_t rows) const;
  /// Bytes of one row of a tensor in a batch with these extents.
  [[nodiscard]] std::uint64_t row_bytes(std::size_t tensor, const batch_extents& extents) const;
  /// Shape of one row of a tensor in such a batch.
  [[nodiscard]] std::vector<std::uint32_t> row_shape(std::size_t tensor, const batch_extents& extents) const;
  /// Tensor bytes of such a batch that are copied from the slot, without padding.
  [[nodiscard]] std::uint64_t payload_bytes(std::uint32_t rows, const batch_extents& extents) const;
  /// Bytes from the beginning of the slot to the last byte that the copy of such a batch reads.
  [[nodiscard]] std::uint64_t read_bytes(std::uint32_t rows, const batch_extents& extents) const;
};

/// Refuses (errc::dataset) an image whose number of channels cannot be normalised, and an encoded tensor without exactly one
/// image of three channels. A uint8 record "flip" with one byte per row controls the mirroring of every image tensor.
result<transfer_plan> plan_transfer(const batch_layout& slot, const image_settings& image);

/// The plan for results of jobs: a batch of one row of plain bytes, at most `bytes_max` (below 4 GiB). The upload's
/// slot is the result itself, and its extents are {bytes of the result}.
transfer_plan plan_of_results(std::uint64_t bytes_max);

/// The only implementation of the formula. It also fills the conversion tables of the host device.
[[nodiscard]] float normalised(std::uint8_t x, float scale, float shift) noexcept;

/// Rounds to nearest, ties to even; infinities and NaN as IEEE says. Returns the bits of the result.
[[nodiscard]] std::uint16_t to_float16(float value) noexcept;
[[nodiscard]] std::uint16_t to_bfloat16(float value) noexcept;

}  // namespace penstock::device
