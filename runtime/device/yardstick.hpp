// Measures what the hardware can do without penstock, in the same process: bare copies from slots to the device, and
// bare device-memory traffic. `penstock bench` compares its copies and conversions with them.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"
#include "runtime/device/transfer_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock::device {

/// The memory of a session's slots.
struct slots_in_memory {
  std::vector<std::span<std::byte>> partitions;   ///< each is registered as one range
  std::vector<std::span<const std::byte>> slots;  ///< in the order in which they are copied, repeatedly
};

struct bare_copies {
  std::string device;  ///< "NVIDIA H200", "host memory"
  double bytes_per_second = 0;
  double register_seconds = 0;  ///< page-locking all partitions
  bool pinned = false;
};

/// The rate of one conversion step in bytes read plus bytes written, and the rate of device copies of the same number of bytes.
struct conversion_rates {
  std::string device;
  double convert_bytes_per_second = 0;
  double copy_bytes_per_second = 0;
};

struct photo_shape {
  std::uint32_t rows = 256;
  std::uint32_t height = 224;
  std::uint32_t width = 224;
};

/// Copies slots to a ring of buffers with cudaMemcpyAsync alone, on one stream with several copies always in flight;
/// with memcpy on the host device. `choice` as for make_device.
result<bare_copies> measure_bare_copies(const std::string& choice, const slots_in_memory& memory,
                                        std::uint32_t buffers, nanoseconds time);

result<conversion_rates> measure_conversion(const std::string& choice, const photo_shape& shape,
                                            const image_settings& settings, nanoseconds time);

}  // namespace penstock::device
