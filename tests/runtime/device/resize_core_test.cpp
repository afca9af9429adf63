// The resize after decoding on the device, run on the host: the same functions that the kernel calls, against the
// resize of the CPU path.
#include "runtime/device/cuda/resize_core.hpp"

#include "runtime/dataset/picture/resample.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <random>
#include <vector>

using namespace penstock;
using namespace penstock::device;

TEST_CASE("the device's resize is within a level of the CPU's, for any box") {
  std::mt19937 draw(5);
  const auto upto = [&](std::uint32_t n) { return static_cast<std::uint32_t>(draw() % n); };
  for (int i = 0; i < 200; ++i) {
    resize_batch batch;
    batch.height = 1 + upto(40);
    batch.width = 1 + upto(40);
    resize_picture& p = batch.picture[0];
    p.width = 1 + upto(150);
    p.height = 1 + upto(150);
    p.box_width = 1 + upto(p.width);
    p.box_height = 1 + upto(p.height);
    p.box_left = upto(p.width - p.box_width + 1);
    p.box_top = upto(p.height - p.box_height + 1);
    std::vector<std::uint8_t> pixels(std::size_t{p.width} * p.height * 3);
    for (std::uint8_t& x : pixels) x = static_cast<std::uint8_t>(draw());
    p.from = pixels.data();
    std::vector<std::uint8_t> got(std::size_t{batch.width} * batch.height * 3);
    batch.to = got.data();
    for (std::uint32_t index = 0; index < batch.width * batch.height; ++index) resize_pixel(batch, 0, index);

    std::vector<std::uint8_t> wanted(got.size());
    resampler cpu;
    cpu.begin({{double(p.box_left), double(p.box_left + p.box_width), p.width, batch.width},
               {double(p.box_top), double(p.box_top + p.box_height), p.height, batch.height},
               {}},
              wanted);
    std::vector<std::uint8_t> row((std::size_t{p.width} + 16) * 4);
    for (std::uint32_t y = cpu.y().source_begin; y < cpu.y().source_end; ++y) {
      for (std::uint32_t x = 0; x < cpu.x().source_end - cpu.x().source_begin; ++x)
        for (std::uint32_t c = 0; c < 3; ++c)
          row[4 * x + c] = pixels[(std::size_t{y} * p.width + cpu.x().source_begin + x) * 3 + c];
      cpu.take_row(row.data());
    }
    REQUIRE(cpu.complete());
    int worst = 0;
    for (std::size_t k = 0; k < got.size(); ++k)
      worst = std::max(worst, std::abs(int(got[k]) - int(wanted[k])));
    CAPTURE(i, p.width, p.height, p.box_width, p.box_height, batch.width, batch.height);
    CHECK(worst <= 1);
  }
}
