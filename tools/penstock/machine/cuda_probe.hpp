// The GPUs that libcuda reports. Used by doctor and launch.
#pragma once

#include "tools/penstock/machine/throwaway.hpp"

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace penstock::machine {

struct cuda_device_facts {
  int ordinal = 0;
  std::string name;
  std::string uuid;
  std::string pci;  ///< "0000:3b:00.0"
  int major = 0;
  int minor = 0;
};

/// Two GPUs that this process sees, by their CUDA numbers.
struct peer_facts {
  int a = 0;
  int b = 0;
  bool access = false;  ///< each GPU can read and write the other's memory
};

/// Facts from libcuda.
struct cuda_facts {
  child_outcome child;
  std::string path;        ///< the loaded file; empty: none
  std::string load_error;  ///< the error of the dynamic loader
  std::optional<int> driver_version;
  std::optional<int> init_code;
  std::string init_name;  ///< "CUDA_ERROR_UNKNOWN"
  std::vector<cuda_device_facts> devices;
  std::vector<peer_facts> peers;  ///< all pairs, a < b
};

inline constexpr std::chrono::milliseconds probe_deadline{30'000};  // initialising eight GPUs takes long

/// The GPUs that libcuda reports in a throwaway process. Library folders are searched below `root`.
[[nodiscard]] cuda_facts look_at_cuda(const std::filesystem::path& root = "/",
                                      std::chrono::milliseconds deadline = probe_deadline);

}  // namespace penstock::machine
