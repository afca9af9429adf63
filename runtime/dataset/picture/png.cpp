#include "runtime/dataset/picture/png.hpp"

#include "runtime/base/units.hpp"

#include <spng.h>

#include <array>
#include <cstring>
#include <memory>
#include <new>

namespace penstock {
namespace {

struct free_context {
  void operator()(spng_ctx* context) const noexcept { spng_ctx_free(context); }
};

tl::unexpected<failure> refused(int status) {
  if (status == SPNG_EMEM) throw std::bad_alloc();
  if (status == SPNG_IO_EOF) return refuse(errc::sample, "truncated PNG: the file ends early");
  return refuse(errc::sample, "PNG cannot be decoded: {}", spng_strerror(status));
}

/// Whether the chunks end with a complete IEND. libspng does not check that: it accepts a file that is truncated
/// inside IEND.
bool is_complete(std::span<const std::byte> file) noexcept {
  constexpr std::array<unsigned char, 12> end_chunk{0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82};
  std::size_t at = 8;
  while (at + end_chunk.size() <= file.size()) {
    if (std::memcmp(file.data() + at, end_chunk.data(), end_chunk.size()) == 0) return true;
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8U | std::to_integer<std::size_t>(file[at + i]);
    if (length > file.size() - at - 12) return false;
    at += 12 + length;
  }
  return false;
}

}  // namespace

result<void> decode_png(std::span<const std::byte> file, const picture_info& info, const pixel_box& window,
                        recycled_buffer& rows, row_sink& sink) {
  // limits text and colour profiles, which libspng always decompresses
  constexpr std::size_t chunk_max = 64 * MiB;
  const std::unique_ptr<spng_ctx, free_context> context(spng_ctx_new(0));
  if (!context) throw std::bad_alloc();
  spng_ctx* const png = context.get();
  int status = spng_set_image_limits(png, info.stored.width, info.stored.height);
  if (status == 0) status = spng_set_chunk_limits(png, chunk_max, chunk_max);
  if (status == 0) status = spng_set_crc_action(png, SPNG_CRC_ERROR, SPNG_CRC_ERROR);
  if (status == 0) status = spng_set_png_buffer(png, file.data(), file.size());
  if (status != 0) return refused(status);

  // Decodes to RGBA instead of RGB, because libspng is as fast with four bytes per pixel, and the resampler needs them.
  const std::size_t row_bytes = std::size_t{info.stored.width} * 4;
  const std::size_t first = std::size_t{window.left} * 4;
  const std::uint32_t window_end = window.top + window.height;
  if (info.interlaced) {
    const std::size_t bytes = row_bytes * info.stored.height;
    std::uint8_t* const pixels = rows.take_u8(bytes + row_padding);
    status = spng_decode_image(png, pixels, bytes, SPNG_FMT_RGBA8, 0);
    if (status != 0) return refused(status);
    for (std::uint32_t y = window.top; y < window_end; ++y) sink.take_row(pixels + y * row_bytes + first);
  } else {
    std::uint8_t* const row = rows.take_u8(row_bytes + row_padding);
    status = spng_decode_image(png, nullptr, 0, SPNG_FMT_RGBA8, SPNG_DECODE_PROGRESSIVE);
    for (std::uint32_t y = 0; status == 0; ++y) {
      status = spng_decode_row(png, row, row_bytes);
      if (status != 0 && status != SPNG_EOI) break;
      if (y >= window.top && y < window_end) sink.take_row(row + first);
    }
    if (status != SPNG_EOI) return refused(status);
  }
  // Read the chunks after the pixels up to IEND: a file that ends earlier was truncated.
  status = spng_decode_chunks(png);
  if (status != 0) return refused(status);
  if (!is_complete(file)) return refused(SPNG_IO_EOF);
  return {};
}

}  // namespace penstock
