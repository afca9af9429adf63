// The questions that penstock-probe answers, each in a throwaway process that may hang or die. The answer is lines of
// JSON on stdout, to be merged by the reader; before each call that may not return, a line {"step": "..."} names it.
#pragma once

#include "runtime/device/driver_library.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>

namespace penstock::probe {

/// libcuda: which file, its version, cuInit, the GPUs it shows. `root`: where its folders are looked for.
int ask_cuda(const std::string& root);
/// The same and a copy there and back through pageable memory, without a kernel of ours (ordinal: of CUDA).
int copy_with_cuda(int ordinal);
/// libnvidia-ml: the GPUs and their state.
int ask_nvml(const std::string& root);

struct deep_request {
  std::string device;  ///< as in [gpu] device
  std::uint32_t partitions = 1;
  std::uint32_t slots = 1;
  std::uint64_t slot_bytes = 0;
};
/// Context, allocation, copy, kernel, copy back and compare, through the device that a session uses;
/// page-locks that many partitions.
int go_deep(const deep_request& request);

/// A step of its own; tells "path" or "load_error".
device::driver_library open_library(const std::string& name, const std::string& root);

/// One line, at once: what comes next may never return.
void tell(const nlohmann::json& facts);
void begin_step(const char* name);

}  // namespace penstock::probe
