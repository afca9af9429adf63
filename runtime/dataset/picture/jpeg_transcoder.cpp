// libjpeg reports errors by longjmp: all state is in struct transcoding, which outlives the jump, and the functions below it
// have no objects with destructors.
#include "runtime/dataset/picture/jpeg_transcoder.hpp"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// jpeglib.h needs FILE to be declared, jerror.h needs the version from jpeglib.h.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

namespace penstock {
namespace {

constexpr int transcoded_scans_max = 500;  // as in jpeg.cpp

struct transcoding {
  jpeg_decompress_struct from{};
  jpeg_compress_struct to{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf failed{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  std::span<const std::byte> file;
  std::vector<unsigned char> buffer;  // if it is too small, libjpeg allocates another
  unsigned char* made = nullptr;
  unsigned long made_bytes = 0;
  bool in_header = true;
  bool reading = true;

  transcoding() = default;
  transcoding(const transcoding&) = delete;
  transcoding& operator=(const transcoding&) = delete;
  ~transcoding() {
    jpeg_destroy_compress(&to);  // does nothing if it was never created
    jpeg_destroy_decompress(&from);
    if (made != buffer.data()) std::free(made);
  }
};

transcoding& transcoding_of(j_common_ptr codec) {
  return *static_cast<transcoding*>(codec->client_data);
}

[[noreturn]] void on_transcoding_error(j_common_ptr codec) {
  transcoding& t = transcoding_of(codec);
  codec->err->format_message(codec, t.message.data());
  std::longjmp(t.failed, 1);
}

/// As in jpeg.cpp, a warning after which libjpeg would continue with grey is an error.
void on_transcoding_message(j_common_ptr codec, int level) {
  if (level >= 0) return;
  switch (codec->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL:
    case JWRN_BOGUS_ICC: return;
    case JWRN_EXTRANEOUS_DATA:
      if (transcoding_of(codec).in_header) return;  // padding between header segments
      break;
    default: break;
  }
  on_transcoding_error(codec);
}

void on_transcoding_progress(j_common_ptr codec) {
  if (codec->is_decompressor == FALSE ||
      reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number <= transcoded_scans_max)
    return;
  transcoding& t = transcoding_of(codec);
  std::snprintf(t.message.data(), t.message.size(), "more than 500 scans");
  std::longjmp(t.failed, 1);
}

/// Copies the metadata segments that libjpeg does not write itself.
void copy_metadata(transcoding& t) {
  for (jpeg_saved_marker_ptr one = t.from.marker_list; one != nullptr; one = one->next) {
    const auto begins_with = [&](const char* magic) {
      return one->data_length >= 5 && std::memcmp(one->data, magic, 5) == 0;
    };
    if (t.to.write_JFIF_header != FALSE && one->marker == JPEG_APP0 && begins_with("JFIF")) continue;
    if (t.to.write_Adobe_marker != FALSE && one->marker == JPEG_APP0 + 14 && begins_with("Adobe")) continue;
    jpeg_write_marker(&t.to, one->marker, one->data, one->data_length);
  }
}

bool transcode(transcoding& t) {
  if (setjmp(t.failed) != 0) return false;
  t.from.err = t.to.err = jpeg_std_error(&t.errors);
  t.errors.error_exit = on_transcoding_error;
  t.errors.emit_message = on_transcoding_message;
  t.from.client_data = t.to.client_data = &t;
  jpeg_create_decompress(&t.from);
  t.progress.progress_monitor = on_transcoding_progress;
  t.from.progress = &t.progress;
  jpeg_mem_src(&t.from, reinterpret_cast<const unsigned char*>(t.file.data()),
               static_cast<unsigned long>(t.file.size()));
  constexpr unsigned whole = 0xffff;
  jpeg_save_markers(&t.from, JPEG_COM, whole);
  for (int app = 0; app < 16; ++app) jpeg_save_markers(&t.from, JPEG_APP0 + app, whole);
  jpeg_read_header(&t.from, TRUE);
  t.in_header = false;
  jvirt_barray_ptr* const coefficients = jpeg_read_coefficients(&t.from);
  t.reading = false;

  jpeg_create_compress(&t.to);
  jpeg_mem_dest(&t.to, &t.made, &t.made_bytes);
  jpeg_copy_critical_parameters(&t.from, &t.to);
  t.to.optimize_coding = TRUE;
  // In a scan of a single component, the MCU is one block, regardless of its sampling factors.
  const bool single = t.from.num_components == 1;
  const auto mcu_width = static_cast<JDIMENSION>(8 * (single ? 1 : t.from.max_h_samp_factor));
  t.to.restart_interval = restart_interval_for((t.from.image_width + mcu_width - 1) / mcu_width, mcu_width);
  jpeg_write_coefficients(&t.to, coefficients);
  copy_metadata(t);
  jpeg_finish_compress(&t.to);
  jpeg_finish_decompress(&t.from);
  return true;
}

}  // namespace

std::uint32_t restart_interval_for(std::uint32_t mcus_in_row, std::uint32_t mcu_width) noexcept {
  // Measured: with longer intervals crops read more data, and with shorter ones files are larger (docs/benchmarks.md).
  constexpr std::uint32_t pixels_max = 32;
  std::uint32_t mcus = std::clamp<std::uint32_t>(pixels_max / mcu_width, 1, mcus_in_row);
  while (mcus_in_row % mcus != 0) --mcus;
  return mcus;
}

result<std::optional<transcoded_jpeg>> add_restart_markers(std::span<const std::byte> file) {
  transcoding t;
  t.file = file;
  constexpr std::size_t more = 65536;
  t.buffer.resize(file.size() + file.size() / 4 + more);
  t.made = t.buffer.data();
  t.made_bytes = t.buffer.size();
  if (transcode(t)) {
    return transcoded_jpeg{std::string(reinterpret_cast<const char*>(t.made), t.made_bytes),
                           t.from.progressive_mode != FALSE};
  }
  if (!t.reading) return std::nullopt;
  return refuse(errc::sample, "JPEG cannot be decoded: {}", t.message.data());
}

}  // namespace penstock
