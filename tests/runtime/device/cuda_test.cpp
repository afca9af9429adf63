// Tests that need a GPU; skipped where there is none (label gpu).
#include "runtime/device/cuda/cuda_device.hpp"
#include "runtime/device/host_device.hpp"
#include "tests/runtime/device/support.hpp"
#include "tests/runtime/device/test_kernels.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

using namespace penstock;
using namespace penstock::device;
using namespace penstock::device_test;
using namespace std::chrono_literals;

namespace {

transfer_plan plain_plan(std::uint32_t bytes) {
  const tensor_spec data{"data", dtype::uint8, {bytes}, tensor_role::data};
  return plan_transfer(lay_out({&data, 1}, 1).value(), {}).value();
}

/// An open CUDA device, and plain batches of a few bytes.
struct plain_stage {
  plain_stage(std::uint32_t bytes, std::uint32_t slots, std::uint32_t buffers, const cuda_choice& choice = {})
      : plan(plain_plan(bytes)),
        slot_bytes(round_up(bytes, 4096)),
        memory(slot_bytes * slots),
        device(make_cuda_device(choice)) {
    REQUIRE(device->open());
    const auto pinned = device->attach(0, memory.span());
    REQUIRE(pinned);
    CHECK(*pinned);
    REQUIRE(device->allocate(plan, buffers));
  }
  ~plain_stage() { device->close(); }

  transfer_plan plan;
  std::uint64_t slot_bytes;
  aligned_bytes memory;
  std::unique_ptr<penstock::device::device> device;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("the GPU writes the host device's bytes, for random shapes, and no byte outside") {
  const auto seed = GENERATE(range(0U, 150U));
  const random_case one(seed);
  CAPTURE(seed, one.text());
  const auto host = make_host_device();
  const auto cuda = make_cuda_device({});
  REQUIRE(one.run(*cuda, fill_device_memory) == one.run(*host));
}

TEST_CASE("a large batch of photographs equals the host device's result bit for bit") {
  const auto type = GENERATE(dtype::uint8, dtype::float16, dtype::bfloat16, dtype::float32);
  random_case one(1);
  one.settings = {image_layout::nchw, type, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  const std::vector<tensor_spec> tensors{{"image", dtype::uint8, {224, 224, 3}, tensor_role::image},
                                         {"label", dtype::int64, {}, tensor_role::data},
                                         {"flip", dtype::uint8, {}, tensor_role::record}};
  one.plan = plan_transfer(lay_out(tensors, 64).value(), one.settings).value();
  one.rows = 61;
  one.slot = std::make_shared<aligned_bytes>(round_up(one.plan.slot.bytes, 4096));
  std::mt19937_64 draw(3);
  for (std::byte& b : one.slot->span()) b = static_cast<std::byte>(draw() & 0xffU);
  const auto host = make_host_device();
  const auto cuda = make_cuda_device({});
  REQUIRE(one.run(*cuda, fill_device_memory) == one.run(*host));
}

TEST_CASE("thousands of small uploads arrive whole and in order, through reused slots and buffers") {
  constexpr std::uint32_t slots = 32;
  constexpr std::uint32_t buffers = 16;
  constexpr std::uint32_t count = 5000;
  plain_stage s(64 * 1024, slots, buffers);
  driver drive(*s.device);
  std::vector<std::byte> back(s.plan.buffer_bytes);
  std::uint64_t next_ready = 0;
  for (std::uint32_t first = 0; first < count; first += buffers) {
    std::vector<upload_job> jobs;
    for (std::uint32_t i = first; i < first + buffers; ++i) {
      std::memset(s.memory.span().data() + i % slots * s.slot_bytes, static_cast<int>(i % 251), 64 * 1024);
      jobs.push_back({i, i % buffers, 0, i % slots * s.slot_bytes, 1});
    }
    REQUIRE(s.device->submit(jobs));
    for (const progress& p : drive.until(std::size_t{2} * buffers)) {
      if (p.reached == stage::ready) REQUIRE(p.upload == next_ready++);
    }
    const std::uint32_t looked_at = first + first / buffers % buffers;
    REQUIRE(s.device->read_back(looked_at % buffers, 0, back));
    REQUIRE(
        std::ranges::all_of(back, [&](std::byte b) { return b == static_cast<std::byte>(looked_at % 251); }));
  }
}

TEST_CASE("a buffer is not written again before the consumer's stream has reached its release") {
  plain_stage s(1 << 20, 2, 1);
  driver drive(*s.device);
  std::memset(s.memory.span().data(), 11, 1 << 20);
  std::memset(s.memory.span().data() + s.slot_bytes, 22, 1 << 20);
  REQUIRE(submit(*s.device, {1, 0, 0, 0, 1}));
  drive.until(2);
  cudaStream_t mine = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking) == cudaSuccess);
  void* seen = nullptr;
  REQUIRE(cudaMalloc(&seen, 1) == cudaSuccess);
  REQUIRE(s.device->wait(0, {mine}));
  REQUIRE(launch_late_read(reinterpret_cast<std::uint8_t*>(s.device->address(0)),
                           static_cast<std::uint8_t*>(seen), 400'000'000, mine) == cudaSuccess);
  REQUIRE(s.device->release(0, {mine}));
  REQUIRE(submit(*s.device, {2, 0, 0, s.slot_bytes, 1}));
  CHECK(s.device->waits_for_consumer());
  drive.until(2);
  CHECK_FALSE(s.device->waits_for_consumer());
  std::uint8_t value = 0;
  REQUIRE(cudaMemcpy(&value, seen, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(value == 11);
  std::vector<std::byte> back(1);
  REQUIRE(s.device->read_back(0, 0, back));
  CHECK(back[0] == std::byte{22});
  cudaFree(seen);
  cudaStreamDestroy(mine);
}

TEST_CASE("a buffer is not written again before each of several streams has reached its release") {
  plain_stage s(1 << 20, 2, 1);
  driver drive(*s.device);
  std::memset(s.memory.span().data(), 11, 1 << 20);
  std::memset(s.memory.span().data() + s.slot_bytes, 22, 1 << 20);
  constexpr std::size_t streams = 3;
  for (std::size_t late = 0; late < streams; ++late) {  // each stream finishes last once
    REQUIRE(submit(*s.device, {1 + 2 * late, 0, 0, 0, 1}));
    drive.until(2);
    std::vector<cudaStream_t> mine(streams);
    std::vector<stream_handle> handles;
    for (cudaStream_t& stream : mine) {
      REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
      handles.push_back({stream});
    }
    void* seen = nullptr;
    REQUIRE(cudaMalloc(&seen, 1) == cudaSuccess);
    REQUIRE(launch_late_read(reinterpret_cast<std::uint8_t*>(s.device->address(0)),
                             static_cast<std::uint8_t*>(seen), 400'000'000, mine[late]) == cudaSuccess);
    REQUIRE(s.device->release_after(0, handles));
    REQUIRE(submit(*s.device, {2 + 2 * late, 0, 0, s.slot_bytes, 1}));
    CHECK(s.device->waits_for_consumer());
    drive.until(2);
    CHECK_FALSE(s.device->waits_for_consumer());
    std::uint8_t value = 0;
    REQUIRE(cudaMemcpy(&value, seen, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(value == 11);
    REQUIRE(s.device->release_after(0, {}));
    cudaFree(seen);
    for (const cudaStream_t stream : mine) cudaStreamDestroy(stream);
  }
}

TEST_CASE("the consumer's calls leave a thread without a context unchanged") {
  plain_stage s(4096, 1, 1);
  driver drive(*s.device);
  REQUIRE(submit(*s.device, {1, 0, 0, 0, 1}));
  drive.until(2);
  std::thread([&] {
    int before = -1;
    int after = -1;
    REQUIRE(cudaGetDevice(&before) == cudaSuccess);
    CHECK(s.device->wait(0, {}));
    CHECK(s.device->release(0, {}));
    std::vector<std::byte> back(1);
    CHECK(s.device->read_back(0, 0, back));
    REQUIRE(cudaGetDevice(&after) == cudaSuccess);
    CHECK(before == after);
  }).join();
}

TEST_CASE("a caller on one GPU that takes batches from another keeps its current device", "[two]") {
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  if (count < 2) SKIP("this machine shows " << count << " GPU: two are needed");
  cuda_choice second;
  second.ordinal = 1;
  plain_stage s(4096, 2, 2, second);
  std::memset(s.memory.span().data(), 7, 4096);
  driver drive(*s.device);
  REQUIRE(submit(*s.device, {1, 0, 0, 0, 1}));
  REQUIRE(submit(*s.device, {2, 1, 0, s.slot_bytes, 1}));
  drive.until(4);
  std::thread([&] {
    cudaStream_t there = nullptr;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&there, cudaStreamNonBlocking) == cudaSuccess);
    cudaStream_t here = nullptr;
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&here, cudaStreamNonBlocking) == cudaSuccess);
    const auto still_on_the_first = [] {
      int now = -1;
      return cudaGetDevice(&now) == cudaSuccess && now == 0;
    };
    CHECK(s.device->wait(0, {there}));
    CHECK(still_on_the_first());
    std::vector<std::byte> back(4096);
    CHECK(s.device->read_back(0, 0, back));
    CHECK(back.front() == std::byte{7});
    CHECK(still_on_the_first());
    CHECK(s.device->finish({there}));
    CHECK(s.device->release(0, {there}));
    CHECK(still_on_the_first());
    // A stream of another GPU cannot use this batch: an error without side effects.
    CHECK_FALSE(s.device->release(1, {here}));
    CHECK(still_on_the_first());
    CHECK(s.device->release(1, {}));
    CHECK(still_on_the_first());
    // The caller's own work on the first GPU continues.
    void* mine = nullptr;
    REQUIRE(cudaMalloc(&mine, 1) == cudaSuccess);
    cudaPointerAttributes where{};
    CHECK(cudaPointerGetAttributes(&where, mine) == cudaSuccess);
    CHECK(where.device == 0);
    cudaFree(mine);
    cudaStreamDestroy(here);
    cudaStreamDestroy(there);
  }).join();
  REQUIRE(submit(*s.device, {3, 0, 0, 0, 1}));
  drive.until(2);
}

TEST_CASE(
    "a lack of device memory is reported with the requested and the free size, and the device stays usable") {
  plain_stage s(1 << 20, 1, 1);
  const auto no = s.device->allocate(plain_plan(1U << 31U), 1024);
  REQUIRE_FALSE(no);
  CHECK(no.error().code == errc::device_out_of_memory);
  const std::string numbers = "requested " + bytes_for_people(std::uint64_t{1} << 41U) + ", free ";
  CHECK(no.error().message.find(numbers) != std::string::npos);
  REQUIRE(s.device->allocate(s.plan, 1));
  driver drive(*s.device);
  REQUIRE(submit(*s.device, {1, 0, 0, 0, 1}));
  CHECK(drive.until(2).size() == 2);
}

TEST_CASE("memory that cannot be registered is still copied, but more slowly") {
  plain_stage s(1 << 20, 2, 1);
  std::memset(s.memory.span().data() + s.slot_bytes, 33, 1 << 20);
  // The first partition has already registered this memory.
  const auto pinned = s.device->attach(1, s.memory.span().subspan(s.slot_bytes));
  REQUIRE(pinned);
  CHECK_FALSE(*pinned);
  driver drive(*s.device);
  REQUIRE(submit(*s.device, {1, 0, 1, 0, 1}));
  drive.until(2);
  std::vector<std::byte> back(1);
  REQUIRE(s.device->read_back(0, 0, back));
  CHECK(back[0] == std::byte{33});
}

TEST_CASE("a device that does not exist is refused with the list of those that do") {
  cuda_choice choice;
  choice.ordinal = 99;
  const auto no = make_cuda_device(choice)->open();
  REQUIRE_FALSE(no);
  CHECK(no.error().code == errc::device_unavailable);
  CHECK(no.error().message.starts_with("cuda:99 does not exist; available: cuda:0 "));
  choice = {std::nullopt, "GPU-00000000"};
  const auto unknown = make_cuda_device(choice)->open();
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message.starts_with("no GPU has the UUID GPU-00000000; available: cuda:0 "));
}

TEST_CASE("a GPU is found by the beginning of its UUID") {
  const auto first = make_cuda_device({});
  const auto what = first->open();
  REQUIRE(what);
  REQUIRE(what->uuid);
  const auto second = make_cuda_device({std::nullopt, what->uuid->substr(0, 12)});
  REQUIRE(second->open());
  first->close();
  second->close();
}

TEST_CASE("uploads next to an equally long kernel of the consumer take little longer than either alone") {
  constexpr std::uint32_t slots = 8;
  constexpr std::uint32_t buffers = 4;
  constexpr int rounds = 40;
  plain_stage s(19'267'584, slots, buffers);
  driver drive(*s.device);
  const auto upload_all = [&] {
    const auto begin = std::chrono::steady_clock::now();
    std::uint64_t submitted = 0;
    for (; submitted < buffers; ++submitted)
      REQUIRE(submit(*s.device, {submitted, static_cast<std::uint32_t>(submitted), 0,
                                 submitted % slots * s.slot_bytes, 1}));
    for (std::uint64_t ready = 0; ready < rounds * buffers;) {
      for (const progress& p : drive.until(1)) {
        if (p.reached != stage::ready) continue;
        ++ready;
        if (submitted == rounds * buffers) continue;
        REQUIRE(submit(*s.device, {submitted, static_cast<std::uint32_t>(p.upload % buffers), 0,
                                   submitted % slots * s.slot_bytes, 1}));
        ++submitted;
      }
    }
    return seconds_since(begin);
  };
  upload_all();
  const double copies = upload_all();
  cudaStream_t mine = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking) == cudaSuccess);
  const auto work = [&](std::uint64_t cycles) {
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(launch_busy(cycles, mine) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(mine) == cudaSuccess);
    return seconds_since(begin);
  };
  work(100'000'000);
  const double per_cycle = work(200'000'000) / 200e6;
  const auto cycles = static_cast<std::uint64_t>(copies / per_cycle);
  const double kernel = work(cycles);
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(launch_busy(cycles, mine) == cudaSuccess);
  upload_all();
  REQUIRE(cudaStreamSynchronize(mine) == cudaSuccess);
  const double both = seconds_since(begin);
  const double ratio = both / std::max(copies, kernel);
  std::printf("overlap: copies %.4f s, kernel %.4f s, both %.4f s, ratio %.3f\n", copies, kernel, both,
              ratio);
  CHECK(ratio <= 1.08);
  cudaStreamDestroy(mine);
}

// Corrupts the context of its process, so the next test runs it in a separate process.
TEST_CASE("an illegal access poisons the context", "[.poison]") {
  plain_stage s(4096, 1, 1);
  driver drive(*s.device);
  REQUIRE(launch_illegal_access(nullptr) == cudaSuccess);
  cudaDeviceSynchronize();
  auto told = submit(*s.device, {1, 0, 0, 0, 1});
  if (told) {
    const auto news = s.device->poll();
    REQUIRE_FALSE(news);
    told = tl::unexpected(news.error());
  }
  CHECK(told.error().code == errc::device_poisoned);
  CHECK(told.error().message.find("or an earlier operation") != std::string::npos);
  CHECK(told.error().message.find("CUDA error 700") != std::string::npos);
  CHECK(told.error().message.find("only a new process can use the device again") != std::string::npos);
  // None of these calls may hang.
  const auto begin = std::chrono::steady_clock::now();
  s.device->close();
  CHECK(seconds_since(begin) < 5);
}

TEST_CASE("after an illegal access the error says that the context is lost, and closing does not hang") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  CHECK(std::system(("'" + self + "' '[.poison]' > /dev/null").c_str()) == 0);
}
