#include "runtime/device/yardstick.hpp"

#include "runtime/device/host_device.hpp"
#include "runtime/device/make_choice.hpp"

#include <cstring>
#include <future>

#ifdef PENSTOCK_HAVE_CUDA
#include "runtime/device/cuda/cuda_yardstick.hpp"
#endif

namespace penstock::device {
namespace {

double seconds_since(steady_time begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bare_copies measure_memcpy(const slots_in_memory& memory, std::uint32_t buffers, nanoseconds time) {
  const std::size_t slot_bytes = memory.slots.front().size();
  std::vector<std::vector<std::byte>> ring(buffers, std::vector<std::byte>(slot_bytes));
  // Touch the memory first, because the first access is slow (page faults).
  for (std::vector<std::byte>& buffer : ring) std::memset(buffer.data(), 1, slot_bytes);
  for (const std::span<const std::byte> slot : memory.slots)
    std::memcpy(ring.front().data(), slot.data(), slot_bytes);
  std::uint64_t copied = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < time) {
    for (int i = 0; i < 8; ++i, ++copied) {
      std::memcpy(ring[copied % buffers].data(), memory.slots[copied % memory.slots.size()].data(),
                  slot_bytes);
    }
  }
  return {"host memory", static_cast<double>(copied * slot_bytes) / seconds_since(begin), 0, true};
}

result<conversion_rates> measure_host_conversion(const transfer_plan& plan, nanoseconds time) {
  const std::uint32_t rows = plan.slot.rows_max;
  std::vector<std::byte> slot(plan.slot.bytes, std::byte{77});
  std::vector<std::byte> other(plan.slot.bytes);
  const auto device = make_host_device();
  if (auto ok = device->attach(0, slot); !ok) return tl::unexpected(std::move(ok.error()));
  if (auto ok = device->allocate(plan, 1); !ok) return tl::unexpected(std::move(ok.error()));
  std::promise<void>* done = nullptr;
  device->on_progress([&] { done->set_value(); });
  std::uint64_t moved = 0;
  auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < time / 2) {
    std::promise<void> ready;
    done = &ready;
    const upload_job job{1, 0, 0, 0, rows};
    if (auto ok = device->submit({&job, 1}); !ok) return tl::unexpected(std::move(ok.error()));
    ready.get_future().wait();
    static_cast<void>(device->poll());
    moved += plan.slot.payload_bytes(rows) + plan.tensors.front().row_bytes * rows;
  }
  conversion_rates rates{"host memory", static_cast<double>(moved) / seconds_since(begin), 0};
  moved = 0;
  begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < time / 2) {
    std::memcpy(other.data(), slot.data(), slot.size());
    moved += 2 * slot.size();
  }
  rates.copy_bytes_per_second = static_cast<double>(moved) / seconds_since(begin);
  device->close();
  return rates;
}

}  // namespace

result<bare_copies> measure_bare_copies(const std::string& choice, const slots_in_memory& memory,
                                        std::uint32_t buffers, nanoseconds time) {
  auto where = resolve_choice(choice);
  if (!where) return tl::unexpected(std::move(where.error()));
#ifdef PENSTOCK_HAVE_CUDA
  if (where->cuda) return measure_cuda_copies(*where->cuda, memory, buffers, time);
#endif
  return measure_memcpy(memory, buffers, time);
}

result<conversion_rates> measure_conversion(const std::string& choice, const photo_shape& shape,
                                            const image_settings& settings, nanoseconds time) {
  const tensor_spec photo{"image", dtype::uint8, {shape.height, shape.width, 3}, tensor_role::image};
  auto layout = lay_out({&photo, 1}, shape.rows);
  if (!layout) return tl::unexpected(std::move(layout.error()));
  auto plan = plan_transfer(*layout, settings);
  if (!plan) return tl::unexpected(std::move(plan.error()));
  if (plan->conversions.empty())
    return refuse(errc::usage, "dtype uint8 in layout nhwc is not converted: choose another layout or dtype");
  auto where = resolve_choice(choice);
  if (!where) return tl::unexpected(std::move(where.error()));
#ifdef PENSTOCK_HAVE_CUDA
  if (where->cuda) return measure_cuda_conversion(*where->cuda, *plan, time);
#endif
  return measure_host_conversion(*plan, time);
}

}  // namespace penstock::device
