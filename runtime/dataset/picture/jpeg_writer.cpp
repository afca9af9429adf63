// libjpeg reports errors by longjmp: all state is in struct encoding, which outlives the jump, and encode() has no
// objects with destructors.
#include "runtime/dataset/picture/jpeg_writer.hpp"

#include "runtime/base/check.hpp"

#include <array>
#include <csetjmp>
#include <cstdlib>

// jpeglib.h needs FILE to be declared.
#include <jpeglib.h>

namespace penstock {
namespace {

struct encoding {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  std::jmp_buf failed{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  unsigned char* file = nullptr;
  unsigned long file_bytes = 0;

  encoding() = default;
  encoding(const encoding&) = delete;
  encoding& operator=(const encoding&) = delete;
  ~encoding() {
    jpeg_destroy_compress(&codec);  // does nothing if the codec was never created
    std::free(file);
  }
};

[[noreturn]] void on_encoding_error(j_common_ptr codec) {
  auto& e = *static_cast<encoding*>(codec->client_data);
  codec->err->format_message(codec, e.message.data());
  std::longjmp(e.failed, 1);
}

bool encode(encoding& e, extent size, const std::uint8_t* rgb, int quality) {
  if (setjmp(e.failed) != 0) {
    e.file = nullptr;  // libjpeg may have freed this buffer, and updates the pointer only at the end
    return false;
  }
  e.codec.err = jpeg_std_error(&e.errors);
  e.errors.error_exit = on_encoding_error;
  e.codec.client_data = &e;
  jpeg_create_compress(&e.codec);
  jpeg_mem_dest(&e.codec, &e.file, &e.file_bytes);
  e.codec.image_width = size.width;
  e.codec.image_height = size.height;
  e.codec.input_components = 3;
  e.codec.in_color_space = JCS_RGB;
  jpeg_set_defaults(&e.codec);
  jpeg_set_quality(&e.codec, quality, TRUE);
  e.codec.optimize_coding = TRUE;
  jpeg_start_compress(&e.codec, TRUE);
  while (e.codec.next_scanline < e.codec.image_height) {
    auto* row = const_cast<JSAMPLE*>(rgb) + std::size_t{e.codec.next_scanline} * size.width * 3;
    jpeg_write_scanlines(&e.codec, &row, 1);
  }
  jpeg_finish_compress(&e.codec);
  return true;
}

}  // namespace

result<std::string> write_jpeg(extent size, std::span<const std::uint8_t> rgb, int quality) {
  PENSTOCK_CHECK(rgb.size() == std::size_t{size.width} * size.height * 3, "{} bytes for {} x {}", rgb.size(),
                 size.width, size.height);
  encoding e;
  if (!encode(e, size, rgb.data(), quality))
    return refuse(errc::sample, "cannot be encoded: {}", e.message.data());
  return std::string(reinterpret_cast<const char*>(e.file), e.file_bytes);
}

}  // namespace penstock
