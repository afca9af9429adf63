// The CUDA device: one copy stream on which slots are copied to the device first in, first out, one compute
// stream on which they are converted, a ring of buffers, events for completion. Shares the primary context
// with the program that embeds us; never resets it.
#pragma once

#include "runtime/device/device.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace penstock::device {

struct cuda_choice {
  std::optional<std::uint32_t> ordinal;
  std::optional<std::string> uuid;  ///< "GPU-..."; an unambiguous beginning is enough
};

std::unique_ptr<device> make_cuda_device(const cuda_choice& choice);

/// Whether this machine has a driver and a GPU. No context is created.
[[nodiscard]] bool cuda_is_there();

}  // namespace penstock::device
