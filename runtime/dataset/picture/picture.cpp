#include "runtime/dataset/picture/picture.hpp"

#include "runtime/base/encoded_picture.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/picture/png.hpp"
#include "runtime/dataset/picture/webp.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstring>

namespace penstock {

std::uint64_t picture_bytes_max(const image_config& config) noexcept {
  // 16-bit RGBA without compression takes 8 bytes a pixel.
  return 64 * MiB + 8 * std::min(config.max_pixels, std::uint64_t{1} << 40U);
}

unsigned dct_denominator(extent box, extent result) noexcept {
  unsigned denominator = 1;
  while (denominator < 8 && box.width / result.width >= 2 * denominator &&
         box.height / result.height >= 2 * denominator) {
    denominator *= 2;
  }
  return denominator;
}

result<picture_loader::oriented_picture> picture_loader::examine(std::span<const std::byte> file,
                                                                 picture_format expected) const {
  const auto info = probe(file, expected);
  if (!info) return tl::unexpected(info.error());
  const std::uint64_t pixels = std::uint64_t{info->stored.width} * info->stored.height;
  if (pixels > config_.max_pixels) {
    return refuse(errc::sample, "{} x {} pixels are more than max_pixels = {}: not decoded",
                  info->stored.width, info->stored.height, config_.max_pixels);
  }
  const bool apply = config_.orientation == orientation_rule::exif;
  const auto turn = orientation::from_exif(apply ? info->orientation : 1);
  return oriented_picture{*info, turn, turn.turned(info->stored)};
}

result<augmentation> picture_loader::load(std::span<const std::byte> file, picture_format expected,
                                          random_source& random, std::span<std::uint8_t> out) {
  const auto picture = examine(file, expected);
  if (!picture) return tl::unexpected(picture.error());
  const augmentation chosen = choose_augmentation(picture->seen, config_, random);
  auto rendered = render(file, *picture, chosen.box, {config_.size[1], config_.size[0]}, out);
  if (!rendered) return tl::unexpected(std::move(rendered.error()));
  return chosen;
}

result<augmentation> picture_loader::load_or_pass_on(std::span<const std::byte> file, picture_format expected,
                                                     random_source& random, std::span<std::uint8_t> out,
                                                     std::span<std::byte> encoded, device_rule rule) {
  const encoded_picture none;
  std::memcpy(encoded.data(), &none, sizeof none);
  const auto picture = examine(file, expected);
  if (!picture) return tl::unexpected(picture.error());
  const augmentation chosen = choose_augmentation(picture->seen, config_, random);
  if (rule.may_decode && pass_on(file, *picture, chosen.box, encoded, rule.index)) return chosen;
  auto rendered = render(file, *picture, chosen.box, {config_.size[1], config_.size[0]}, out);
  if (!rendered) return tl::unexpected(std::move(rendered.error()));
  return chosen;
}

bool picture_loader::pass_on(std::span<const std::byte> file, const oriented_picture& picture,
                             const pixel_box& box, std::span<std::byte> encoded, std::uint64_t index) {
  const extent size = picture.info.stored;
  if (picture.info.format != picture_format::jpeg || picture.turn != orientation{} ||
      std::min(size.width, size.height) < encoded_side_min || std::max(size.width, size.height) > encoded_side_max ||
      std::uint64_t{size.width} * size.height > encoded_pixels_max) {
    return false;
  }
  const stage_range range("check");
  const auto bytes = plain_bytes(file, index);
  if (!bytes || *bytes > encoded_file_bytes_max) return false;
  const encoded_picture header{static_cast<std::uint32_t>(*bytes),
                               size.width,
                               size.height,
                               box.top,
                               box.left,
                               box.height,
                               box.width,
                               0};
  std::memcpy(encoded.data(), &header, sizeof header);
  std::memcpy(encoded.subspan(sizeof header).data(), file.data(), *bytes);
  return true;
}

std::optional<std::size_t> picture_loader::plain_bytes(std::span<const std::byte> file, std::uint64_t index) {
  const std::uint64_t hash = checked_files::hash_of(file);
  if (checked_.holds(index, hash)) return file.size();
  const auto bytes = checker_.plain_bytes(file);
  // Files with bytes after their picture are not recorded, but checked each time: they are rare.
  if (bytes == file.size()) checked_.add(index, hash);
  return bytes;
}

result<picture_loader::whole> picture_loader::load_whole(std::span<const std::byte> file,
                                                         picture_format expected, std::uint32_t shorter) {
  const auto picture = examine(file, expected);
  if (!picture) return tl::unexpected(picture.error());
  extent size = picture->seen;
  const std::uint32_t side = std::min(size.width, size.height);
  if (shorter != 0 && shorter < side) {
    const auto reduced = [&](std::uint32_t old) {
      return static_cast<std::uint32_t>((std::uint64_t{old} * shorter + side / 2) / side);
    };
    size = {reduced(size.width), reduced(size.height)};
  }
  const std::size_t bytes = std::size_t{size.width} * size.height * 3;
  const std::span<std::uint8_t> out(pixels_.take_u8(bytes), bytes);
  auto rendered = render(file, *picture, {0, 0, picture->seen.height, picture->seen.width}, size, out);
  if (!rendered) return tl::unexpected(std::move(rendered.error()));
  return whole{size, out};
}

result<void> picture_loader::render(std::span<const std::byte> file, const oriented_picture& picture,
                                    const pixel_box& seen, extent size, std::span<std::uint8_t> out) {
  const picture_info& info = picture.info;
  const orientation turn = picture.turn;
  const pixel_box box = turn.to_stored(seen, info.stored);
  const extent target = turn.turned(size);
  const bool partly =
      config_.augment == augment_kind::random_resized_crop && info.format == picture_format::jpeg;
  const unsigned d = partly ? dct_denominator({box.width, box.height}, target) : 1;
  const double step = 1.0 / d;  // a power of two, so positions stay exact
  resampler_.begin(
      {{box.left * step, (box.left + box.width) * step, scaled_side(info.stored.width, d), target.width},
       {box.top * step, (box.top + box.height) * step, scaled_side(info.stored.height, d), target.height},
       turn},
      out);
  const axis_weights& x = resampler_.x();
  const axis_weights& y = resampler_.y();
  const pixel_box window{y.source_begin, x.source_begin, y.source_end - y.source_begin,
                         x.source_end - x.source_begin};
  const stage_range range("decode");
  auto decoded = [&] {
    switch (info.format) {
      case picture_format::png: return decode_png(file, info, window, rows_, resampler_);
      case picture_format::webp: return decode_webp(file, info, window, rows_, resampler_);
      case picture_format::jpeg: break;
    }
    return decode(file, info, {info.stored, d, window, partly ? decode_rule::window_only : decode_rule::whole_file});
  }();
  // Decoders allocate from the heap, which does not shrink on its own after a huge picture.
  constexpr std::uint64_t huge_pixels = 8 * MiB;
  if (std::uint64_t{info.stored.width} * info.stored.height > huge_pixels) ::malloc_trim(0);
  if (!decoded) return decoded;
  if (!resampler_.complete())
    return refuse(errc::sample, "its decoder returned fewer rows than its header promised");
  return {};
}

result<void> picture_loader::decode(std::span<const std::byte> file, const picture_info& info,
                                    const jpeg_request& request) {
  if (info.restart_markers && request.rule == decode_rule::window_only) {
    if (const auto part = cutter_.cut(file, request))
      return decode_jpeg(part->file, part->request, rows_, resampler_);
  }
  return decode_jpeg(file, request, rows_, resampler_);
}

}  // namespace penstock
