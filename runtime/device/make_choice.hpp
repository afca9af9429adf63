// Interprets [gpu] device on this machine and in this build. Used by make_device and the yardstick.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::device {

struct cuda_choice {
  std::optional<std::uint32_t> ordinal;
  std::optional<std::string> uuid;  ///< "GPU-..."; an unambiguous prefix is enough
};

/// No `cuda` means the host device.
struct device_choice {
  std::optional<cuda_choice> cuda;
};

/// "auto" chooses the CUDA device if this build has it and the machine has a GPU. Refuses what this build cannot do
/// (errc::device_unavailable) and invalid text (errc::config).
result<device_choice> resolve_choice(const std::string& choice);

}  // namespace penstock::device
