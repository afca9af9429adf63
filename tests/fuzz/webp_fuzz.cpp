// WebP files: any bytes are refused, or decoded to all rows of a picture whose size is the one in the header.
#include "runtime/dataset/picture/probe.hpp"
#include "runtime/dataset/picture/webp.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>
#include <string_view>

using namespace penstock;

namespace {

class row_counter final : public row_sink {
 public:
  explicit row_counter(std::uint32_t width) : width_(width) {}
  void take_row(const std::uint8_t* rgbx) noexcept override {
    for (std::uint32_t x = 0; x < 4 * width_; ++x) sum += rgbx[x];  // a sanitizer reports rows that are too short
    ++rows;
  }
  std::uint64_t sum = 0;
  std::uint32_t rows = 0;

 private:
  std::uint32_t width_;
};

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

void read_picture(std::span<const std::byte> file) {
  const auto info = probe(file, picture_format::webp);
  if (!info || info->format != picture_format::webp) return;
  must(info->stored.width > 0 && info->stored.height > 0 && info->orientation >= 1 && info->orientation <= 8);
  constexpr std::uint32_t side_max = 256;
  if (std::max(info->stored.width, info->stored.height) > side_max) return;
  recycled_buffer rows;
  row_counter sink(info->stored.width);
  if (decode_webp(file, *info, {0, 0, info->stored.height, info->stored.width}, rows, sink)) must(sink.rows == info->stored.height);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  read_picture(file);
  // Most changes of the length are refused at once, so also try the bytes with the right length.
  if (size < 12) return 0;
  std::vector<std::byte> repaired(file.begin(), file.end());
  for (unsigned i = 0; i < 4; ++i) repaired[4 + i] = static_cast<std::byte>((size - 8) >> (8 * i) & 0xffU);
  read_picture(repaired);
  return 0;
}

// 16 x 12 pixels as Pillow writes them: lossless; lossy; lossy with alpha and EXIF; animated.
std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const std::string_view hex : {
           "5249464662000000574542505650384c550000002f0fc002006740244032c00a66ffef740461b611c07db7f9431d1061b6710ce0bedb10"
           "6ffe7b902da045d5a2ba00fb0135645b790a29a490c25348218514524821857e436b1d22fa9f41a1d2c8975f6730596c0e1700",
           "52494646300000005745425056503820240000009001009d012a10000c0002c04c25a40002e68bcce000fef5a3b3f8cf563d6ea54e0000"
           "00",
           "52494646f000000057454250565038580a000000180000000f00000b0000414c5048830000000d992e44f43f203b9264d78aaafaa095ff"
           "4ef2aba11bd83522620226e0f9051c8ae3df3874004f061080fa0401a351452926a48ad2058c4a530a204673440185128ed248570623d5"
           "97baf34ddf34b8847fe716545201973e49d0b51bef5e7cf986002ec540aa2f7309a3812e4ccc0c06c7b718602ea8e23f7354548c4625cc"
           "202646230056503820240000009001009d012a10000c0002c04c25a40002e68bcce000fef5a3b3f8cf563d6ea54e000000455849461a00"
           "00004d4d002a00000008000101120003000000010006000000000000",
           "52494646ea00000057454250565038580a000000020000000f00000b0000414e494d06000000000000000000414e4d4652000000000000"
           "0000000f00000b000000000002565038203a0000005001009d012a10000c0004006825a400058c0000fedd87ffffa51fff4425fffa23d4"
           "bd4a3b837706ee0dda876a1da87706ed43b50ed43a780000414e4d46640000000000000000000f00000b000000000000565038204c0000"
           "005401009d012a10000c00000068259c0004740000fee353ffef319ffe9cd0be7add77ed6fffe3616ff9bbce2956e7fff1b0b7fcdde714"
           "ab73fff8d85bfe6ef38a55b9fffc6c2dff3741ef8000"
       }) {
    seeds.push_back(bytes_of(hex));
    const auto info = probe(std::as_bytes(std::span(seeds.back())));
    // A refused seed would test nothing, except for the animated one.
    must(info ? info->stored == extent{16, 12} : info.error().message.starts_with("animated"));
  }
  return seeds;
}
