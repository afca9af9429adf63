// Decoding on the GPU. Skipped without a GPU (label gpu) or without nvJPEG.
#include "runtime/base/encoded_picture.hpp"
#include "runtime/dataset/picture/picture.hpp"
#include "runtime/device/cuda/cuda_device.hpp"
#include "runtime/device/nvjpeg.hpp"
#include "tests/runtime/dataset/fixtures.hpp"
#include "tests/runtime/device/support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

using namespace penstock;
using namespace penstock::device;
using namespace penstock::device_test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t side = 96;
constexpr std::size_t row_bytes = std::size_t{side} * side * 3;
constexpr std::uint32_t slots = 3;

/// Batches in slots, as a worker fills them, and the pixels that the CPU path gives.
struct photographs {
  explicit photographs(std::uint32_t batch) : rows(batch) {
    const std::vector<tensor_spec> tensors{
        {"image", dtype::uint8, {side, side, 3}, tensor_role::image},
        {"label", dtype::int64, {}, tensor_role::data},
        {"flip", dtype::uint8, {}, tensor_role::record},
        {"encoded", dtype::uint8, {encoded_row_bytes}, tensor_role::encoded}};
    plan = plan_transfer(lay_out(tensors, batch).value(), {image_layout::nhwc, dtype::uint8, {}, {1, 1, 1}})
               .value();
    slot_bytes = round_up(plan.slot.bytes, 4096);
    memory = std::make_unique<aligned_bytes>(slot_bytes * slots);
    image_config config;
    config.size = {side, side};
    config.decoder = decoder_rule::gpu;
    picture_loader loader(config);
    picture_loader plain(config);
    for (std::uint32_t i = 0; i < slots * batch; ++i) {
      penstock::testing::jpeg_options options;
      options.quality = static_cast<int>(80 + i % 16);
      options.horizontal = 1 + i % 2;
      options.vertical = i % 4 == 1 ? 2 : 1;
      options.restart_rows = i % 5 == 0 ? 2 : 0;
      const extent size{16 + 37 * (i % 11), 16 + 29 * (i % 13)};
      const auto file = penstock::testing::encode_jpeg(penstock::testing::make_raster(size, 3, i), options);
      random_source random(1, 0, i);
      random_source again(1, 0, i);
      const auto slot = memory->span().subspan(slot_bytes * (i / batch), slot_bytes);
      const std::uint32_t row = i % batch;
      const auto at = [&](std::size_t tensor) {
        const tensor_place& place = plan.slot.tensors[tensor];
        return slot.subspan(place.offset + place.row_bytes * row, place.row_bytes);
      };
      const auto pixels = at(0);
      REQUIRE(loader.load_or_pass_on(file, picture_format::jpeg, random,
                                     {reinterpret_cast<std::uint8_t*>(pixels.data()), pixels.size()}, at(3),
                                     {i % 7 != 6, i}));
      at(2)[0] = std::byte{0};
      wanted.emplace_back(row_bytes);
      REQUIRE(plain.load(file, picture_format::jpeg, again, wanted.back()));
    }
  }

  [[nodiscard]] upload_job job(std::uint64_t upload, std::uint32_t buffer, std::uint32_t slot) const {
    return {upload, buffer, 0, slot_bytes * slot, rows, {}};
  }
  [[nodiscard]] std::vector<std::byte> images(device::device& d, std::uint32_t buffer) const {
    std::vector<std::byte> all(row_bytes * rows);
    REQUIRE(d.read_back(buffer, plan.tensors[0].offset, all));
    return all;
  }

  std::uint32_t rows;
  transfer_plan plan;
  std::uint64_t slot_bytes = 0;
  std::unique_ptr<aligned_bytes> memory;
  std::vector<std::vector<std::uint8_t>> wanted;
};

/// Fills the GPU's memory, but for about `left` bytes.
class full_memory {
 public:
  explicit full_memory(std::size_t left) {
    constexpr std::size_t smallest = 2U << 20U;
    for (std::size_t piece = std::size_t{8} << 30U; piece >= smallest;) {
      std::size_t free = 0;
      std::size_t total = 0;
      REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
      if (free < left + smallest) break;
      void* taken = nullptr;
      if (cudaMalloc(&taken, std::min(piece, free - left)) == cudaSuccess) {
        pieces_.push_back(taken);
      } else {
        cudaGetLastError();
        piece /= 2;
      }
    }
  }
  ~full_memory() {
    for (void* const piece : pieces_) cudaFree(piece);
  }
  full_memory(const full_memory&) = delete;
  full_memory& operator=(const full_memory&) = delete;

 private:
  std::vector<void*> pieces_;
};

bool nvjpeg_is_there() {
  if (nvjpeg_library::open()) return true;
  WARN("no nvJPEG here");
  return false;
}

}  // namespace

TEST_CASE(
    "JPEGs decoded on the GPU are close to the CPU's, and rows filled by workers stay unchanged, anywhere in a batch") {
  if (!nvjpeg_is_there()) return;
  for (const std::uint32_t rows : {5U, 64U, 150U}) {
    const photographs given(rows);
    const auto d = make_cuda_device({});
    REQUIRE(d->open());
    REQUIRE(d->attach(0, given.memory->span()));
    REQUIRE(d->allocate(given.plan, slots));
    driver drive(*d);
    for (std::uint32_t s = 0; s < slots; ++s) REQUIRE(submit(*d, given.job(s + 1, s, s)));
    drive.until(2 * slots);
    std::vector<std::vector<std::byte>> first;
    double least = 99;
    double sum = 0;
    std::size_t decoded = 0;
    for (std::uint32_t s = 0; s < slots; ++s) {
      first.push_back(given.images(*d, s));
      for (std::uint32_t r = 0; r < rows; ++r) {
        const auto& wanted = given.wanted[s * rows + r];
        const auto* const got = reinterpret_cast<const std::uint8_t*>(first.back().data()) + row_bytes * r;
        double squares = 0;
        for (std::size_t i = 0; i < row_bytes; ++i) squares += std::pow(double(got[i]) - wanted[i], 2);
        if ((s * rows + r) % 7 == 6) {
          CHECK(squares == 0);
          continue;
        }
        const double ratio = 10 * std::log10(255.0 * 255 * row_bytes / std::max(squares, 1.0));
        least = std::min(least, ratio);
        sum += ratio;
        ++decoded;
      }
    }
    CAPTURE(rows);
    CHECK(least > 25);  // small pictures with film grain differ most
    CHECK(sum / static_cast<double>(decoded) > 34);
    // The same bits again, from other buffers.
    for (std::uint32_t s = 0; s < slots; ++s) REQUIRE(d->release_after(s, {}));
    for (std::uint32_t s = 0; s < slots; ++s) REQUIRE(submit(*d, given.job(10 + s, slots - 1 - s, s)));
    drive.until(2 * slots);
    for (std::uint32_t s = 0; s < slots; ++s) CHECK((given.images(*d, slots - 1 - s) == first[s]));
    d->close();
  }
}

TEST_CASE(
    "a lack of device memory for the decoder is reported with the sizes and what to lower, and the device stays usable") {
  if (!nvjpeg_is_there()) return;
  const photographs given(8);
  const auto d = make_cuda_device({});
  REQUIRE(d->open());
  REQUIRE(d->attach(0, given.memory->span()));
  {
    const full_memory full(48U << 20U);
    const auto no = d->allocate(given.plan, slots);
    REQUIRE_FALSE(no);
    CAPTURE(no.error().message);
    CHECK(no.error().code == errc::device_out_of_memory);
    for (const char* part : {"decoding JPEGs", "requested 80.0 MiB, free ", "lower [gpu] buffers"})
      CHECK(no.error().message.find(part) != std::string::npos);
  }
  REQUIRE(d->allocate(given.plan, slots));
  driver drive(*d);
  REQUIRE(submit(*d, given.job(1, 0, 0)));
  CHECK(drive.until(2).size() == 2);
  d->close();
}

TEST_CASE("a wrong header is refused and named, and the device stays usable") {
  if (!nvjpeg_is_there()) return;
  photographs given(4);
  for (int i = 0; i < 2; ++i) {
    const auto d = make_cuda_device({});
    REQUIRE(d->open());
    REQUIRE(d->attach(0, given.memory->span()));
    REQUIRE(d->allocate(given.plan, slots));
    const std::uint64_t at = given.plan.decode->from;
    encoded_picture header;
    std::memcpy(&header, given.memory->span().subspan(at).data(), sizeof header);
    const encoded_picture good = header;
    if (i == 0) header.box_width = header.width + 1;
    std::memcpy(given.memory->span().subspan(at).data(), &header, sizeof header);
    REQUIRE(submit(*d, given.job(1, 0, 0)));
    auto polled = d->poll();
    for (int tries = 0; tries < 2000 && polled && polled->empty(); ++tries) {
      std::this_thread::sleep_for(1ms);
      polled = d->poll();
    }
    std::memcpy(given.memory->span().subspan(at).data(), &good, sizeof good);
    if (i == 0) {
      REQUIRE_FALSE(polled);
      CHECK(polled.error().code == errc::protocol);
      CHECK(polled.error().message.find("row 0") != std::string::npos);
    } else {
      CHECK(polled);
    }
    d->close();
  }
}
