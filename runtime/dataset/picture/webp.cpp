#include "runtime/dataset/picture/webp.hpp"

#include "runtime/base/shared_library.hpp"

namespace penstock {
namespace {

// Declarations copied from webp/decode.h.
struct webp_functions {
  int (*get_info)(const std::uint8_t* data, std::size_t size, int* width, int* height) = nullptr;
  std::uint8_t* (*decode)(const std::uint8_t* data, std::size_t size, std::uint8_t* into, std::size_t into_size,
                          int stride) = nullptr;
};

result<webp_functions> open_webp() {
  constexpr const char* file = "libwebp.so.7";
  const shared_library library(file);
  if (!library)
    return refuse(errc::config, "reading WebP pictures needs {}: {} (the package libwebp7 provides it)", file, library.trouble());
  webp_functions found;
  // Decodes to RGBA instead of RGB, because the resampler needs four bytes per pixel.
  if (!library.find("WebPGetInfo", found.get_info) || !library.find("WebPDecodeRGBAInto", found.decode))
    return refuse(errc::config, "reading WebP pictures needs functions that {} does not have", library.path());
  return found;
}

const result<webp_functions>& opened_webp() {
  static const result<webp_functions> opened = open_webp();
  return opened;
}

}  // namespace

result<void> check_webp() {
  if (!opened_webp()) return tl::unexpected(opened_webp().error());
  return {};
}

result<void> decode_webp(std::span<const std::byte> file, const picture_info& info, const pixel_box& window,
                         recycled_buffer& rows, row_sink& sink) {
  const auto& with = opened_webp();
  if (!with) return refuse(errc::sample, "{}", with.error().message);
  const auto* const data = reinterpret_cast<const std::uint8_t*>(file.data());
  int width = 0;
  int height = 0;
  if (with->get_info(data, file.size(), &width, &height) == 0)
    return refuse(errc::sample, "WebP cannot be decoded: its header is corrupt");
  // A smaller picture would leave old pixels in the rest of `rows`.
  if (extent{static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height)} != info.stored) {
    return refuse(errc::sample, "WebP cannot be decoded: {} x {} pixels according to libwebp, {} x {} according to its frame", width,
                  height, info.stored.width, info.stored.height);
  }
  const std::size_t row_bytes = std::size_t{info.stored.width} * 4;
  const std::size_t bytes = row_bytes * info.stored.height;
  std::uint8_t* const pixels = rows.take_u8(bytes + row_padding);
  if (with->decode(data, file.size(), pixels, bytes, static_cast<int>(row_bytes)) == nullptr)
    return refuse(errc::sample, "WebP cannot be decoded: its data is corrupt or ends early");
  for (std::uint32_t y = window.top; y < window.top + window.height; ++y)
    sink.take_row(pixels + y * row_bytes + std::size_t{window.left} * 4);
  return {};
}

}  // namespace penstock
