// A library of the GPU's driver, opened at run time: penstock links neither libcuda nor libnvidia-ml. Used for NVML
// (nvml.hpp), for functions that CUDA's runtime lacks (cuda/cuda_context.cpp), and by penstock-probe.
#pragma once

#include "runtime/base/shared_library.hpp"

namespace penstock::device {

class driver_library : public shared_library {
 public:
  /// Lets the dynamic loader find the library; with a root other than "/", searches the library folders below it. The
  /// file name in path() ends with the driver's version.
  explicit driver_library(const std::string& name, const std::string& root = "/");
};

}  // namespace penstock::device
