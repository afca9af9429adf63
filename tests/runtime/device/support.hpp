// Shared by the device tests: which device is under test, driving it as the owner does, random batches.
#pragma once

#include "runtime/base/units.hpp"
#include "runtime/device/device.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <vector>

namespace penstock::device_test {

inline constexpr std::byte poison{0xa5};

/// The device that this test program is built for: "host" or "cuda".
std::unique_ptr<device::device> make_tested_device();
/// Fills memory of that device.
void fill_device_memory(std::byte* address, std::byte value, std::size_t bytes);

inline result<void> submit(device::device& d, const device::upload_job& job) {
  return d.submit({&job, 1});
}

/// Submits and collects with a real waker, as the owner does.
class driver {
 public:
  explicit driver(device::device& d) : device_(d) {
    d.on_progress([this] {
      const std::lock_guard hold(mutex_);
      news_ = true;
      changed_.notify_one();
    });
  }
  ~driver() { device_.on_progress({}); }

  std::vector<device::progress> until(std::size_t count) {
    std::vector<device::progress> all;
    while (all.size() < count) {
      {
        std::unique_lock hold(mutex_);
        REQUIRE(changed_.wait_for(hold, std::chrono::seconds(10), [&] { return news_; }));
        news_ = false;
      }
      const auto some = device_.poll();
      REQUIRE(some);
      all.insert(all.end(), some->begin(), some->end());
    }
    return all;
  }

 private:
  device::device& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool news_ = false;
};

/// Memory with the alignment of device memory and mapped slots.
class aligned_bytes {
 public:
  explicit aligned_bytes(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(::operator new(bytes + 1, alignment))) {}
  ~aligned_bytes() { ::operator delete(data_, alignment); }
  aligned_bytes(const aligned_bytes&) = delete;
  aligned_bytes& operator=(const aligned_bytes&) = delete;
  [[nodiscard]] std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  static constexpr std::align_val_t alignment{4096};
  std::size_t bytes_;
  std::byte* data_;
};

/// A batch of random shape, type, layout and bytes; every third one has a size that takes the vector path.
struct random_case {
  explicit random_case(unsigned seed) {
    std::mt19937 draw(seed);
    const auto upto = [&](std::uint32_t n) { return static_cast<std::uint32_t>(draw() % n); };
    rows_max = 1 + upto(9);
    rows = seed % 7 == 6 ? 0 : 1 + upto(rows_max);
    height = 1 + upto(40);
    width = 1 + upto(40);
    if (seed % 3 == 0) width = 8 * (1 + upto(6));
    settings.layout = upto(2) == 0 ? image_layout::nchw : image_layout::nhwc;
    constexpr dtype types[] = {dtype::uint8, dtype::float16, dtype::bfloat16, dtype::float32};
    settings.type = types[upto(4)];
    channels = upto(4) == 0 ? 1 : 3;
    if (settings.type == dtype::uint8 && upto(3) == 0) channels = 1 + upto(6);
    for (double& m : settings.mean) m = std::uniform_real_distribution(-2.0, 2.0)(draw);
    for (double& s : settings.std) s = std::uniform_real_distribution(0.001, 3.0)(draw);
    if (upto(8) == 0) settings.std = {1e-6, 900, 0.3};  // covers overflow and subnormals of float16
    std::vector<tensor_spec> tensors{{"image", dtype::uint8, {height, width, channels}, tensor_role::image},
                                     {"label", dtype::int64, {}, tensor_role::data}};
    if (upto(3) != 0) tensors.push_back({"flip", dtype::uint8, {}, tensor_role::record});
    plan = device::plan_transfer(lay_out(tensors, rows_max).value(), settings).value();
    slot = std::make_shared<aligned_bytes>(round_up(plan.slot.bytes, 4096));
    for (std::byte& b : slot->span()) b = static_cast<std::byte>(draw());
    if (const auto flip = plan.slot.index_of("flip")) {
      for (std::uint32_t r = 0; r < rows_max; ++r)
        slot->span()[plan.slot.tensors[*flip].offset + r] = static_cast<std::byte>(draw() % 2);
    }
  }

  [[nodiscard]] std::span<std::byte> slot_bytes() const { return slot->span().first(plan.slot.bytes); }
  [[nodiscard]] std::string text() const {
    return fmt::format("{} of {} rows, {}x{}x{}, {} {}", rows, rows_max, height, width, channels,
                       name_of(settings.type), settings.layout == image_layout::nchw ? "nchw" : "nhwc");
  }

  /// The whole device buffer after an upload into memory filled with a pattern.
  [[nodiscard]] std::vector<std::byte> run(device::device& d,
                                           void (*fill)(std::byte*, std::byte, std::size_t) = nullptr) const {
    REQUIRE(d.open());
    REQUIRE(d.attach(0, slot->span()));
    REQUIRE(d.allocate(plan, 2));
    driver drive(d);
    if (fill != nullptr) {
      fill(d.address(1), poison, plan.buffer_bytes);
    } else {
      std::memset(d.address(1), static_cast<int>(poison), plan.buffer_bytes);
    }
    REQUIRE(submit(d, {1, 1, 0, 0, rows}));
    drive.until(2);
    std::vector<std::byte> out(plan.buffer_bytes);
    REQUIRE(d.read_back(1, 0, out));
    d.close();
    return out;
  }

  device::image_settings settings;
  std::uint32_t rows_max = 0;
  std::uint32_t rows = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;
  device::transfer_plan plan;
  std::shared_ptr<aligned_bytes> slot;
};

}  // namespace penstock::device_test
