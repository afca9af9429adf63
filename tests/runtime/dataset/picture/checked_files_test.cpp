#include "runtime/dataset/picture/checked_files.hpp"

#include "runtime/base/encoded_picture.hpp"
#include "runtime/dataset/picture/picture.hpp"
#include "tests/runtime/dataset/fixtures.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstring>

using namespace penstock;
using namespace penstock::testing;

TEST_CASE("a file that one worker has checked is known to the others") {
  const unique_fd memory = checked_files::make(10).value();
  checked_files one(memory.get(), 10);
  const checked_files other(memory.get(), 10);
  const std::uint64_t hash = checked_files::hash_of(encode_jpeg(make_raster({64, 48})));
  CHECK_FALSE(other.holds(3, hash));
  one.add(3, hash);
  CHECK(other.holds(3, hash));
  CHECK_FALSE(other.holds(3, hash + 1));
  CHECK_FALSE(other.holds(4, hash));
  one.add(10, hash);  // there is no sample 10
  CHECK_FALSE(other.holds(10, hash));
}

TEST_CASE("without the session's memory no checked file is remembered") {
  const unique_fd memory = checked_files::make(10).value();
  std::array<checked_files, 3> none{checked_files(), checked_files(-1, 10), checked_files(memory.get(), 11)};
  for (checked_files& files : none) {
    files.add(0, 1);
    CHECK_FALSE(files.holds(0, 1));
  }
}

TEST_CASE("a file that changes after its check is checked again") {
  image_config config;
  config.size = {32, 32};
  config.decoder = decoder_rule::gpu;
  const unique_fd memory = checked_files::make(1).value();
  picture_loader loader(config, checked_files(memory.get(), 1));
  std::vector<std::uint8_t> pixels(std::size_t{32} * 32 * 3);
  bytes encoded(encoded_row_bytes);
  const auto passes_on = [&](const bytes& file) {
    random_source random(1, 0, 0);
    const auto loaded =
        loader.load_or_pass_on(file, picture_format::jpeg, random, pixels, encoded, {true, 0});
    encoded_picture header;
    std::memcpy(&header, encoded.data(), sizeof header);
    return loaded && header.bytes == file.size();
  };
  const bytes good = encode_jpeg(make_raster({160, 120}));
  bytes bad = good;
  for (std::size_t i = bad.size() / 2; i < bad.size() / 2 + 40; ++i) bad[i] = std::byte{0xfe};
  CHECK(passes_on(good));
  CHECK(passes_on(good));
  CHECK_FALSE(passes_on(bad));
  CHECK(passes_on(good));
}
