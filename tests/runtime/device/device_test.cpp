// The contract of every device. Built twice: for the host device, and for the CUDA device (label gpu).
#include "runtime/device/device.hpp"

#include "tests/runtime/device/support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>

using namespace penstock;
using namespace penstock::device;
using namespace penstock::device_test;

namespace {

batch_layout photos(std::uint32_t rows, std::uint32_t h, std::uint32_t w) {
  return lay_out(std::vector<tensor_spec>{{"image", dtype::uint8, {h, w, 3}, tensor_role::image},
                                          {"label", dtype::int64, {}, tensor_role::data},
                                          {"flip", dtype::uint8, {}, tensor_role::record}},
                 rows)
      .value();
}

template <class T>
T element(const std::vector<std::byte>& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

TEST_CASE("every element of a converted batch equals the formula's, mirrored where its flip flag is set") {
  const auto layout = GENERATE(image_layout::nchw, image_layout::nhwc);
  const auto type = GENERATE(dtype::uint8, dtype::float16, dtype::bfloat16, dtype::float32);
  constexpr std::uint32_t rows = 3;
  constexpr std::uint32_t h = 5;
  constexpr std::uint32_t w = 7;
  const image_settings settings{layout, type, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  const auto slot = photos(rows, h, w);
  const auto plan = plan_transfer(slot, settings).value();
  std::vector<std::byte> memory(slot.bytes);
  std::mt19937 random(5);
  for (std::byte& b : memory) b = static_cast<std::byte>(random());
  const tensor_place& flips = slot.tensors[2];
  for (std::uint32_t r = 0; r < rows; ++r) memory[flips.offset + r] = static_cast<std::byte>(r % 2);

  const auto device = make_tested_device();
  REQUIRE(device->open());
  REQUIRE(device->attach(0, memory));
  REQUIRE(device->allocate(plan, 2));
  driver drive(*device);
  fill_device_memory(device->address(1), poison, plan.buffer_bytes);
  REQUIRE(submit(*device, {9, 1, 0, 0, rows}));
  drive.until(2);

  std::vector<std::byte> out(plan.tensors[0].row_bytes * rows);
  REQUIRE(device->read_back(1, plan.tensors[0].offset, out));
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t y = 0; y < h; ++y) {
      for (std::uint32_t x = 0; x < w; ++x) {
        for (std::uint32_t c = 0; c < 3; ++c) {
          const std::uint32_t sx = r % 2 == 1 ? w - 1 - x : x;
          const auto pixel =
              static_cast<std::uint8_t>(memory[slot.tensors[0].offset + ((r * h + y) * w + sx) * 3 + c]);
          const auto scale = static_cast<float>(1.0 / (255.0 * settings.std[c]));
          const auto shift = static_cast<float>(-settings.mean[c] / settings.std[c]);
          const float y32 = std::fma(static_cast<float>(pixel), scale, shift);
          const std::size_t at =
              layout == image_layout::nchw ? ((r * 3 + c) * h + y) * w + x : ((r * h + y) * w + x) * 3 + c;
          switch (type) {
            case dtype::uint8: REQUIRE(element<std::uint8_t>(out, at) == pixel); break;
            case dtype::float16: REQUIRE(element<std::uint16_t>(out, at) == to_float16(y32)); break;
            case dtype::bfloat16: REQUIRE(element<std::uint16_t>(out, at) == to_bfloat16(y32)); break;
            default: REQUIRE(element<float>(out, at) == y32);
          }
        }
      }
    }
  }
  std::vector<std::byte> labels(8 * rows);
  REQUIRE(device->read_back(1, plan.tensors[1].offset, labels));
  CHECK(std::memcmp(labels.data(), memory.data() + slot.tensors[1].offset, labels.size()) == 0);
  device->close();
}

TEST_CASE("uploads are done in the order of their submission, each first copied, then ready") {
  const auto slot =
      lay_out(std::vector<tensor_spec>{{"data", dtype::uint8, {64}, tensor_role::data}}, 4).value();
  const auto plan = plan_transfer(slot, {}).value();
  std::vector<std::byte> memory(slot.bytes * 8);
  const auto device = make_tested_device();
  REQUIRE(device->open());
  REQUIRE(device->attach(3, memory));
  REQUIRE(device->allocate(plan, 8));
  driver drive(*device);
  for (std::uint32_t i = 0; i < 8; ++i) REQUIRE(submit(*device, {100 + i, i, 3, i * slot.bytes, 4}));
  const auto news = drive.until(16);
  std::uint64_t next_copied = 100;
  std::uint64_t next_ready = 100;
  for (const progress& p : news) {
    if (p.reached == stage::copied) CHECK(p.upload == next_copied++);
    if (p.reached == stage::ready) {
      CHECK(p.upload == next_ready++);
      CHECK(p.upload < next_copied);
    }
  }
  device->close();
}

TEST_CASE("job results of any size reach their buffers from any place in a slot") {
  constexpr std::uint64_t most = 100'000;
  const auto plan = plan_of_results(most);
  std::vector<std::byte> memory(4 * most);
  std::mt19937 random(7);
  for (std::byte& b : memory) b = static_cast<std::byte>(random());
  const auto device = make_tested_device();
  REQUIRE(device->open());
  REQUIRE(device->attach(0, memory));
  REQUIRE(device->allocate(plan, 4));
  driver drive(*device);
  std::uint64_t upload = 0;
  for (const std::uint32_t bytes : {0U, 1U, 63U, 4096U, 65'537U, static_cast<std::uint32_t>(most)}) {
    const std::uint64_t offset = 4 * most - bytes - bytes % 64;  // some offsets reach the end of the memory
    fill_device_memory(device->address(upload % 4), poison, most);
    REQUIRE(submit(*device, {upload, static_cast<std::uint32_t>(upload % 4), 0, offset, 1, {bytes}}));
    drive.until(2);
    std::vector<std::byte> out(most);
    REQUIRE(device->read_back(upload % 4, 0, out));
    CHECK(std::memcmp(out.data(), memory.data() + offset, bytes) == 0);
    CHECK(std::all_of(out.begin() + bytes, out.end(), [](std::byte b) { return b == poison; }));
    CHECK(plan.payload_bytes(1, {bytes}) == bytes);
    ++upload;
  }
  device->close();
}

TEST_CASE(
    "a program that asks for more device memory than there is gets an error, and the device stays usable") {
  const auto device = make_tested_device();
  REQUIRE(device->open());
  REQUIRE(device->enter_programs());
  const auto refused = device->take_memory(std::uint64_t{1} << 63U);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::device_out_of_memory);
  CHECK(device->finish_program());
  const auto given = device->take_memory(4096);
  REQUIRE(given);
  fill_device_memory(*given, poison, 4096);
  device->give_back_memory(*given);
  device->close();
}

TEST_CASE("the host device's buffers are populated from the start, so no copy waits for page faults") {
  const auto device = make_tested_device();
  REQUIRE(device->open());
  if (!device->on_host()) SKIP("device memory has no page faults");
  const auto [rows, side] = GENERATE(std::pair(1U, 8U), std::pair(16U, 256U));
  const auto plan = plan_transfer(photos(rows, side, side), {}).value();
  REQUIRE(device->allocate(plan, 2));
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (const std::uint32_t buffer : {0U, 1U}) {
    const auto begin = reinterpret_cast<std::uintptr_t>(device->address(buffer));
    const std::uintptr_t first = begin / page * page;
    std::vector<unsigned char> resident((begin + plan.buffer_bytes - first + page - 1) / page);
    REQUIRE(::mincore(reinterpret_cast<void*>(first), begin + plan.buffer_bytes - first, resident.data()) ==
            0);
    CHECK(std::ranges::all_of(resident, [](unsigned char there) { return (there & 1U) != 0; }));
  }
}

TEST_CASE("a batch without rows is ready without touching any byte") {
  const auto slot = photos(4, 2, 2);
  const auto plan = plan_transfer(slot, {}).value();
  std::vector<std::byte> memory(slot.bytes);
  const auto device = make_tested_device();
  REQUIRE(device->open());
  REQUIRE(device->attach(0, memory));
  REQUIRE(device->allocate(plan, 1));
  driver drive(*device);
  fill_device_memory(device->address(0), poison, plan.buffer_bytes);
  REQUIRE(submit(*device, {1, 0, 0, 0, 0}));
  drive.until(2);
  std::vector<std::byte> out(plan.buffer_bytes);
  REQUIRE(device->read_back(0, 0, out));
  REQUIRE(std::ranges::all_of(out, [](std::byte b) { return b == poison; }));
  device->close();
}

TEST_CASE("a closed device can be closed again") {
  const auto device = make_tested_device();
  device->close();
  REQUIRE(device->open());
  device->close();
  device->close();
}
