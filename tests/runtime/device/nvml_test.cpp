// NVML and the list of a GPU's processes, with a fake library: tests/cli/doctor/fake_driver.cpp.
#include "runtime/device/nvml.hpp"

#include "runtime/device/gpu_process_watch.hpp"

#include <catch2/catch_test_macros.hpp>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <future>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

const std::string fake_uuid = "GPU-11111111-1111-1111-1111-111111111111";

/// The fake library reads the environment of this process.
void set_processes(const std::string& list) {
  ::setenv("FAKE_PROCESSES", list.c_str(), 1);
}

device::nvml fake() {
  return device::nvml(device::driver_library(FAKE_NVML_LIBRARY));
}

}  // namespace

TEST_CASE("NVML lists the processes on a GPU and the memory of each") {
  set_processes("4127:512 55:0");
  device::nvml n = fake();
  REQUIRE(n.start());
  const auto gpu = n.by_uuid(fake_uuid);
  REQUIRE(gpu);
  const auto seen = n.processes_on(*gpu);
  REQUIRE(seen);
  REQUIRE(seen->size() == 2);
  CHECK(seen->at(0).pid == 4127);
  CHECK(seen->at(0).bytes == 512U << 20U);
  CHECK(seen->at(1).pid == 55);
}

TEST_CASE("an unused GPU is reported as having no processes") {
  set_processes("");
  device::nvml n = fake();
  REQUIRE(n.start());
  const auto seen = n.processes_on(n.by_uuid(fake_uuid).value());
  REQUIRE(seen);
  CHECK(seen->empty());
}

TEST_CASE("a UUID that NVML does not know finds no GPU") {
  device::nvml n = fake();
  REQUIRE(n.start());
  CHECK_FALSE(n.by_uuid("GPU-22222222"));
}

TEST_CASE("a missing NVML is refused with the loader's reason") {
  device::nvml n{device::driver_library("libno-such-library.so.1")};
  const auto started = n.start();
  REQUIRE_FALSE(started);
  CHECK(started.error().code == errc::device_unavailable);
  CHECK(started.error().message.find("libno-such-library.so.1") != std::string::npos);
}

TEST_CASE("an NVML that refuses to start says why, with its code") {
  ::setenv("FAKE_NVML", "9", 1);
  device::nvml n = fake();
  const auto started = n.start();
  ::unsetenv("FAKE_NVML");
  REQUIRE_FALSE(started);
  CHECK(started.error().os_code == 9);
  CHECK(started.error().message == "what the fake says");
}

TEST_CASE("processes that exist on this machine are shown with their names") {
  const std::string words = device::in_words({{::getpid(), 512U << 20U}, {4'000'000, 0}});
  CHECK(words.find("pid " + std::to_string(::getpid()) + " (test_device, 512 MiB), pid 4000000 (0 B)") == 0);
}

TEST_CASE("the watch reports what NVML sees, and again whenever that changes") {
  set_processes("4127:512");
  std::promise<void> first;
  std::promise<void> second;
  std::size_t told = 0;
  device::gpu_process_watch watch(
      fake_uuid,
      [&](const std::vector<gpu_process>& seen) {
        ++told;
        if (told == 1 && seen.size() == 1 && seen.front().pid == 4127) first.set_value();
        if (told == 2) second.set_value();
      },
      {0s, 1ms}, FAKE_NVML_LIBRARY);
  CHECK(first.get_future().wait_for(20s) == std::future_status::ready);
  CHECK(second.get_future().wait_for(20s) == std::future_status::ready);
}

TEST_CASE("the watch reports nothing where there is no NVML") {
  bool told = false;
  {
    const device::gpu_process_watch watch(
        fake_uuid, [&](const auto&) { told = true; }, {0s, 1ms}, "libno-such-library.so.1");
  }
  CHECK_FALSE(told);
}

TEST_CASE("no thread waits for a watch that was abandoned while the driver hangs") {
  std::array<int, 2> hangs{};
  REQUIRE(::pipe(hangs.data()) == 0);
  ::setenv("FAKE_NVML", "hang", 1);
  ::setenv("FAKE_HANG_FD", std::to_string(hangs[1]).c_str(), 1);
  const auto begin = std::chrono::steady_clock::now();
  {
    const device::gpu_process_watch watch(
        fake_uuid, [](const auto&) {}, {0s, 1ms}, FAKE_NVML_LIBRARY);
    char told = 0;
    REQUIRE(::read(hangs[0], &told, 1) == 1);
  }
  ::unsetenv("FAKE_NVML");
  CHECK(std::chrono::steady_clock::now() - begin < 15s);
}
