// JPEGs with restart markers: for any bytes, the part that is cut out for a window is decoded or refused as a JPEG. If the whole file can
// be decoded, the part has the same pixels.
#include "runtime/dataset/picture/jpeg_transcoder.hpp"
#include "runtime/dataset/picture/jpeg_writer.hpp"
#include "runtime/dataset/picture/probe.hpp"
#include "runtime/dataset/picture/restart_cut.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>
#include <optional>

using namespace penstock;

namespace {

constexpr std::size_t choice_bytes = 5;

class pixel_sink final : public row_sink {
 public:
  explicit pixel_sink(std::uint32_t width) : width_(width) {}
  void take_row(const std::uint8_t* rgbx) noexcept override {
    for (std::uint32_t x = 0; x < width_; ++x) pixels.insert(pixels.end(), rgbx + 4 * x, rgbx + 4 * x + 3);
  }
  std::vector<std::uint8_t> pixels;

 private:
  std::uint32_t width_;
};

std::optional<std::vector<std::uint8_t>> decode(std::span<const std::byte> file,
                                                const jpeg_request& request) {
  recycled_buffer rows;
  pixel_sink sink(request.window.width);
  if (!decode_jpeg(file, request, rows, sink)) return std::nullopt;
  return std::move(sink.pixels);
}

const std::string& good_picture() {
  static const std::string picture = [] {
    constexpr extent size{112, 80};
    std::vector<std::uint8_t> rgb;
    for (std::uint32_t i = 0; i < size.width * size.height * 3; ++i)
      rgb.push_back(static_cast<std::uint8_t>(i * 7 + i / 331));
    const auto jpeg = write_jpeg(size, rgb, 60);
    must(jpeg.has_value());
    auto marked = add_restart_markers(std::as_bytes(std::span(*jpeg)));
    must(marked && *marked);
    return std::move((*marked)->file);
  }();
  return picture;
}

/// The good picture with a few bytes changed: four bytes of the input select where and how. Most changes of the file itself would leave
/// nothing to cut.
std::string edited(std::span<const std::uint8_t> edits) {
  std::string file = good_picture();
  for (; edits.size() >= 4; edits = edits.subspan(4)) {
    const std::size_t at = (edits[0] * std::size_t{256} + edits[1]) % file.size();
    switch (edits[2] % 4) {
      case 0: file[at] = static_cast<char>(edits[3]); break;
      case 1: file[at] = static_cast<char>(file[at] ^ (1 << edits[3] % 8)); break;
      case 2: file.insert(at, 1, static_cast<char>(edits[3])); break;
      default: file.erase(at, 1); break;
    }
  }
  return file;
}

void try_file(std::span<const std::byte> file, std::span<const std::uint8_t, choice_bytes> choice) {
  static_cast<void>(add_restart_markers(file));
  const auto info = probe(file);
  constexpr std::uint32_t side_max = 512;
  if (!info || info->format != picture_format::jpeg ||
      std::max(info->stored.width, info->stored.height) > side_max)
    return;
  const unsigned denominator = 1U << (choice[0] % 4U);
  const extent full{scaled_side(info->stored.width, denominator),
                    scaled_side(info->stored.height, denominator)};
  pixel_box window;
  window.top = choice[1] * full.height / 256;
  window.left = choice[2] * full.width / 256;
  window.height = 1 + choice[3] * (full.height - window.top - 1) / 256;
  window.width = 1 + choice[4] * (full.width - window.left - 1) / 256;
  const jpeg_request request{info->stored, denominator, window, decode_rule::window_only};
  restart_cutter cutter;
  const auto part = cutter.cut(file, request);
  if (!part) return;
  const pixel_box& moved = part->request.window;
  must(moved.width == window.width && moved.height == window.height);
  const auto whole = decode(file, request);
  const auto got = decode(part->file, part->request);
  if (whole) must(got && *got == *whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < choice_bytes) return 0;
  const std::span input(data, size);
  const auto choice = input.first<choice_bytes>();
  const auto rest = input.subspan(choice_bytes);
  constexpr std::size_t edits_max = 64;
  if (rest.size() > edits_max) {
    try_file(std::as_bytes(rest), choice);
  } else {
    const std::string file = edited(rest);
    try_file(std::as_bytes(std::span(file)), choice);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string choice("\x00\x80\x80\x20\x20", choice_bytes);
  return {choice,
          choice + std::string("\x03\x00\x00\x00", 4),
          choice + std::string("\x04\x00\x01\x00\x05\x10\x01\x03", 8),
          std::string("\x01\x20\x40\x80\x40\x06\x00\x02\x20", 9),
          std::string("\x02\x00\xa0\xff\x40\x02\xff\x03\x00", 9),
          choice + good_picture()};
}
