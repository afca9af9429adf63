#include "runtime/device/transfer_plan.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/encoded_picture.hpp"
#include "runtime/base/units.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace penstock::device {
namespace {

std::optional<std::uint64_t> flip_flags_of(const batch_layout& slot) {
  const auto index = slot.index_of("flip");
  if (!index) return std::nullopt;
  const tensor_place& place = slot.tensors[*index];
  const bool fits =
      place.spec.role == tensor_role::record && place.spec.type == dtype::uint8 && place.row_bytes == 1;
  return fits ? std::optional(place.offset) : std::nullopt;
}

/// Empty if there is no encoded tensor.
result<std::optional<decode_step>> decoding_of(const batch_layout& slot) {
  const tensor_place* encoded = nullptr;
  const tensor_place* image = nullptr;
  std::size_t images = 0;
  for (const tensor_place& place : slot.tensors) {
    if (place.spec.role == tensor_role::encoded) encoded = &place;
    if (place.spec.role != tensor_role::image) continue;
    image = &place;
    ++images;
  }
  if (encoded == nullptr) return std::optional<decode_step>();
  if (images != 1 || image->spec.shape[2] != 3 || encoded->row_bytes != encoded_row_bytes) {
    return refuse(errc::dataset, "encoded tensor '{}' needs {} bytes, and one image of three channels",
                  encoded->spec.name, encoded_row_bytes);
  }
  return std::optional<decode_step>({encoded->offset, encoded->row_bytes, image->offset, image->row_bytes,
                                     image->spec.shape[0], image->spec.shape[1]});
}

std::vector<std::uint32_t> converted_shape(const std::vector<std::uint32_t>& hwc, image_layout layout) {
  return layout == image_layout::nhwc ? hwc : std::vector{hwc[2], hwc[0], hwc[1]};
}

}  // namespace

result<transfer_plan> plan_transfer(const batch_layout& slot, const image_settings& image) {
  transfer_plan plan;
  plan.slot = slot;
  auto decode = decoding_of(slot);
  if (!decode) return tl::unexpected(std::move(decode.error()));
  plan.decode = *decode;
  const auto flip = flip_flags_of(slot);
  for (const tensor_place& place : slot.tensors) {
    if (place.spec.role == tensor_role::record || place.spec.role == tensor_role::encoded) continue;
    device_tensor t{place.spec.name, place.spec.type,   place.spec.shape,
                    place.row_bytes, plan.buffer_bytes, std::nullopt};
    if (place.spec.length == length_rule::batch_maximum) t.lengths = slot.tensors[*place.lengths].offset;
    const bool is_image = place.spec.role == tensor_role::image;
    if (is_image &&
        (image.type != dtype::uint8 || image.layout != image_layout::nhwc || flip || plan.decode)) {
      const auto& hwc = place.spec.shape;
      if (image.type != dtype::uint8 && hwc[2] != 1 && hwc[2] != 3) {
        return refuse(errc::dataset, "image tensor '{}' has {} channels, but mean and std need 1 or 3",
                      t.name, hwc[2]);
      }
      t.type = image.type;
      t.shape = converted_shape(hwc, image.layout);
      t.row_bytes = elements_of(hwc) * size_of(image.type);
      convert_step step{place.offset, t.offset,   hwc[0], hwc[1], hwc[2],
                        image.layout, image.type, {},     {},     flip};
      for (std::size_t c = 0; c < 3; ++c) {
        step.scale[c] = static_cast<float>(1.0 / (255.0 * image.std[c]));
        step.shift[c] = static_cast<float>(-image.mean[c] / image.std[c]);
      }
      plan.conversions.push_back(step);
      plan.staged = true;
    } else {
      plan.copies.push_back({place.offset, t.offset, t.row_bytes, plan.tensors.size()});
    }
    plan.buffer_bytes = round_up(plan.buffer_bytes + t.row_bytes * slot.rows_max, layout_alignment);
    plan.tensors.push_back(std::move(t));
  }
  return plan;
}

batch_extents transfer_plan::extents_of(std::span<const std::byte> slot_bytes, std::uint32_t rows) const {
  const auto is_trimmed = [](const device_tensor& t) { return t.lengths.has_value(); };
  if (std::ranges::none_of(tensors, is_trimmed)) return {};
  batch_extents extents(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const device_tensor& t = tensors[i];
    if (!t.shape.empty()) extents[i] = t.shape.front();
    if (!t.lengths) continue;
    std::int64_t longest = 0;
    for (std::uint32_t row = 0; row < rows; ++row) {
      std::int64_t length = 0;
      std::memcpy(&length, slot_bytes.subspan(*t.lengths + row * sizeof length).data(), sizeof length);
      longest = std::max(longest, length);
    }
    // Do not trust the worker's number, so as never to read past a row.
    extents[i] = static_cast<std::uint32_t>(std::min<std::int64_t>(longest, t.shape.front()));
  }
  return extents;
}

std::uint64_t transfer_plan::row_bytes(std::size_t tensor, const batch_extents& extents) const {
  const device_tensor& t = tensors[tensor];
  return extents.empty() || !t.lengths ? t.row_bytes : t.row_bytes / t.shape.front() * extents[tensor];
}

std::vector<std::uint32_t> transfer_plan::row_shape(std::size_t tensor, const batch_extents& extents) const {
  std::vector<std::uint32_t> shape = tensors[tensor].shape;
  if (!extents.empty() && tensors[tensor].lengths) shape.front() = extents[tensor];
  return shape;
}

std::uint64_t transfer_plan::payload_bytes(std::uint32_t rows, const batch_extents& extents) const {
  std::uint64_t bytes = slot.payload_bytes(rows);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].lengths) bytes -= rows * (tensors[i].row_bytes - row_bytes(i, extents));
  return bytes;
}

std::uint64_t transfer_plan::read_bytes(std::uint32_t rows, const batch_extents& extents) const {
  if (extents.empty() || staged) return slot.used_bytes(rows);
  std::uint64_t end = 0;
  for (const copy_step& step : copies)
    end = std::max(end, step.from + row_bytes(step.tensor, extents) * rows);
  return end;
}

transfer_plan plan_of_results(std::uint64_t bytes_max) {
  PENSTOCK_CHECK(bytes_max > 0 && bytes_max <= std::numeric_limits<std::uint32_t>::max(), "results of {}",
                 bytes_max);
  const std::vector<std::uint32_t> shape{static_cast<std::uint32_t>(bytes_max)};
  transfer_plan plan;
  plan.slot.rows_max = 1;
  plan.slot.tensors = {
      {{"result", dtype::uint8, shape, tensor_role::data, length_rule::exact}, bytes_max, 0}};
  plan.slot.described = 1;
  plan.slot.bytes = bytes_max;
  plan.tensors = {{"result", dtype::uint8, shape, bytes_max, 0, std::uint64_t{0}}};
  plan.copies = {{0, 0, bytes_max, 0}};
  plan.buffer_bytes = round_up(bytes_max, layout_alignment);
  return plan;
}

float normalised(std::uint8_t x, float scale, float shift) noexcept {
  return std::fma(static_cast<float>(x), scale, shift);
}

std::uint16_t to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fff'ffffU;
  if (magnitude > 0x7f80'0000U) return sign | 0x7e00U;   // NaN
  if (magnitude >= 0x4780'0000U) return sign | 0x7c00U;  // 65536 and up: infinity
  if (magnitude < 0x3880'0000U) {
    // Below 2^-14 the result is subnormal: a multiple of 2^-24. Adding 0.5 in float32 rounds to such a multiple, to even.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f00'0000U));
  }
  // Drop 13 bits of the mantissa, rounding to nearest even. A carry into the exponent is correct.
  const std::uint32_t rebased = magnitude - 0x3800'0000U;
  return static_cast<std::uint16_t>(sign | ((rebased + 0xfffU + ((rebased >> 13U) & 1U)) >> 13U));
}

std::uint16_t to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fff'ffffU) > 0x7f80'0000U)
    return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);  // NaN stays
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

}  // namespace penstock::device
