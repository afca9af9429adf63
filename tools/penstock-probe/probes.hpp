// The probes of penstock-probe, each run in a throwaway process that may hang or die. They print lines of
// JSON on stdout, which the reader merges; before each call that may not return, a line {"step": "..."} names
// it.
#pragma once

#include "runtime/device/driver_library.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>

namespace penstock::probe {

/// Examines libcuda: its file and version, the result of cuInit, the
/// visible GPUs. `root`: library folders are searched below it.
int ask_cuda(const std::string& root);
/// The same, and copies to the GPU and back through pageable memory, without a kernel. `ordinal`: CUDA's.
int copy_with_cuda(int ordinal);
/// Examines libnvidia-ml: the GPUs and their state.
int ask_nvml(const std::string& root);

struct deep_request {
  std::string device;  ///< as in [gpu] device
  std::uint32_t partitions = 1;
  std::uint32_t slots = 1;
  std::uint64_t slot_bytes = 0;
};
/// Uses the device as a session does: creates a context, allocates, copies a batch,
/// runs the kernel, copies back and compares. Page-locks `partitions` partitions.
int go_deep(const deep_request& request);

/// Loads a library as a step of its own, and prints its "path" or a "load_error".
device::driver_library open_library(const std::string& name, const std::string& root);

/// Prints one line and flushes it: the next call may never return.
void tell(const nlohmann::json& facts);
void begin_step(const char* name);

}  // namespace penstock::probe
