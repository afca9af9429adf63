// libjpeg reports errors by longjmp. All state is in struct session, which outlives the jump. run() and the
// functions it calls have no objects with destructors, because any call into libjpeg may jump out of them.
#include "runtime/dataset/picture/jpeg.hpp"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>

// jpeglib.h needs FILE to be declared, jerror.h needs the version from jpeglib.h.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

namespace penstock {
namespace {

// Real progressive files have about ten; a decompression bomb has thousands over a large picture.
constexpr int scans_max = 500;

struct session {
  jpeg_decompress_struct codec{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf failed{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  bool in_header = true;

  std::span<const std::byte> file;
  const jpeg_request* request = nullptr;
  recycled_buffer* rows = nullptr;
  row_sink* sink = nullptr;

  session() = default;
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session() { jpeg_destroy_decompress(&codec); }  // does nothing if the codec was never created
};

session& session_of(j_common_ptr codec) {
  return *static_cast<session*>(codec->client_data);
}

[[noreturn]] void fail(session& s) {
  std::longjmp(s.failed, 1);
}

[[noreturn]] void fail(session& s, const char* reason) {
  std::snprintf(s.message.data(), s.message.size(), "%s", reason);
  fail(s);
}

[[noreturn]] void on_error(j_common_ptr codec) {
  session& s = session_of(codec);
  codec->err->format_message(codec, s.message.data());
  fail(s);
}

/// Warnings that do not affect pixels. After any other warning (early end, bad Huffman codes, lost restart markers,
/// ...) libjpeg continues with grey; penstock treats these as errors.
bool is_harmless(int warning, bool in_header) noexcept {
  switch (warning) {
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL:
    case JWRN_BOGUS_ICC: return true;
    case JWRN_EXTRANEOUS_DATA: return in_header;  // padding between header segments
    default: return false;
  }
}

void on_message(j_common_ptr codec, int level) {
  if (level < 0 && !is_harmless(codec->err->msg_code, session_of(codec).in_header)) on_error(codec);
}

void on_progress(j_common_ptr codec) {
  if (reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number > scans_max) {
    fail(session_of(codec), "more than 500 scans");
  }
}

void start(session& s) {
  jpeg_decompress_struct& codec = s.codec;
  jpeg_create_decompress(&codec);
  codec.progress = &s.progress;
  s.progress.progress_monitor = on_progress;
  jpeg_mem_src(&codec, reinterpret_cast<const unsigned char*>(s.file.data()),
               static_cast<unsigned long>(s.file.size()));
  jpeg_read_header(&codec, TRUE);
  if (codec.image_width != s.request->stored.width || codec.image_height != s.request->stored.height) {
    fail(s, "its frame headers contradict each other");
  }
  if (codec.num_components == 2 || codec.num_components > 4)
    fail(s, "its colours are neither grey, RGB nor CMYK");
  codec.out_color_space = codec.num_components == 4 ? JCS_CMYK : JCS_EXT_RGBX;
  codec.scale_num = 1;
  codec.scale_denom = s.request->denominator;
  codec.dct_method = JDCT_ISLOW;
  codec.do_fancy_upsampling = TRUE;
  // Smoothing guesses missing coefficients and reads outside the window.
  codec.do_block_smoothing = FALSE;
  s.in_header = false;
  jpeg_start_decompress(&codec);
  if (codec.output_width != scaled_side(s.request->stored.width, s.request->denominator) ||
      codec.output_height != scaled_side(s.request->stored.height, s.request->denominator)) {
    fail(s, "libjpeg scales it in an unexpected way");
  }
}

/// Restricts libjpeg to the columns of the window; returns the first column of its output.
std::uint32_t crop_columns(session& s) {
  jpeg_decompress_struct& codec = s.codec;
  const pixel_box& window = s.request->window;
  // libjpeg-turbo 2.1.5 miscounts chroma samples when scaling and cropping are combined with rare
  // subsamplings.
  if (s.request->denominator > 1 && std::max(codec.max_h_samp_factor, codec.max_v_samp_factor) > 2) return 0;
  // Upsampling mixes neighbouring chroma samples and treats a cropped edge as the edge of the picture, so keep two
  // samples of context. Also keep rows longer than two samples, because libjpeg uses other routines for shorter ones.
  const auto sample = static_cast<std::uint32_t>(codec.max_h_samp_factor);
  const std::uint32_t context = sample > 1 ? 2 * sample : 0;
  const std::uint32_t shortest = 16 * sample;
  JDIMENSION begin = window.left - std::min(window.left, context);
  const std::uint32_t end =
      std::min(codec.output_width, std::max(window.left + window.width + context, begin + shortest));
  begin = std::min(begin, end - std::min(end, shortest));
  JDIMENSION width = end - begin;
  if (width < codec.output_width) jpeg_crop_scanline(&codec, &begin, &width);
  return begin;
}

/// (x * y + 128) / 255, rounded: Pillow's MULDIV255.
unsigned multiply_255(unsigned x, unsigned y) noexcept {
  const unsigned t = x * y + 128;
  return ((t >> 8U) + t) >> 8U;
}

/// Adobe writes CMYK inverted, and Pillow treats all four-channel files as Adobe's; so do we.
void cmyk_to_rgbx(std::uint8_t* row, std::uint32_t width) noexcept {
  for (std::uint32_t i = 0; i < width; ++i, row += 4) {
    const unsigned white = row[3];
    for (unsigned c = 0; c < 3; ++c)
      row[c] = static_cast<std::uint8_t>(white - multiply_255(255U - row[c], white));
  }
}

void run(session& s) {
  start(s);
  jpeg_decompress_struct& codec = s.codec;
  const pixel_box& window = s.request->window;
  const bool whole = s.request->rule == decode_rule::whole_file;
  const std::uint32_t first_column = whole ? 0 : crop_columns(s);
  // Misaligned on purpose: libjpeg-turbo writes aligned rows with stores that bypass the cache (movntdq), and the resampler
  // would then wait for memory on every row. Measured: a third of the whole pipeline's time.
  constexpr std::size_t misalignment = 4;
  std::uint8_t* const row =
      s.rows->take_u8(misalignment + std::size_t{codec.output_width} * 4 + row_padding) + misalignment;
  std::uint8_t* const begin = row + std::size_t{window.left - first_column} * 4;
  JSAMPROW line = row;
  if (!whole && window.top > 0) jpeg_skip_scanlines(&codec, window.top);
  const std::uint32_t window_end = window.top + window.height;
  const std::uint32_t end = whole ? codec.output_height : window_end;
  while (codec.output_scanline < end) {
    const std::uint32_t y = codec.output_scanline;
    if (jpeg_read_scanlines(&codec, &line, 1) != 1) fail(s, "its data ends early");
    if (y < window.top || y >= window_end) continue;
    if (codec.out_color_space == JCS_CMYK) cmyk_to_rgbx(begin, window.width);
    s.sink->take_row(begin);
  }
  if (whole) {
    jpeg_finish_decompress(&codec);
    return;
  }
  if (jpeg_input_complete(&codec) != FALSE || codec.unread_marker == JPEG_EOI) return;
  const auto rest = s.file.last(codec.src->bytes_in_buffer);
  constexpr std::array end_of_image{std::byte{0xff}, std::byte{JPEG_EOI}};
  // Search from the end, where intact files have the marker.
  if (std::find_end(rest.begin(), rest.end(), end_of_image.begin(), end_of_image.end()) == rest.end()) {
    fail(s, "truncated: no end-of-image marker");
  }
}

/// This function must not have local objects with destructors.
bool guarded(session& s) {
  if (setjmp(s.failed) != 0) return false;
  run(s);
  return true;
}

}  // namespace

result<void> decode_jpeg(std::span<const std::byte> file, const jpeg_request& request, recycled_buffer& rows,
                         row_sink& sink) {
  session s;
  s.codec.err = jpeg_std_error(&s.errors);
  s.codec.client_data = &s;
  s.errors.error_exit = on_error;
  s.errors.emit_message = on_message;
  s.file = file;
  s.request = &request;
  s.rows = &rows;
  s.sink = &sink;
  // Each file gets a new codec. A reused one would apply one file's Huffman tables to the next.
  if (guarded(s)) return {};
  const std::string_view message(s.message.data());
  if (message.starts_with("truncated")) return refuse(errc::sample, "{}", message);
  return refuse(errc::sample, "JPEG cannot be decoded: {}", message);
}

}  // namespace penstock
