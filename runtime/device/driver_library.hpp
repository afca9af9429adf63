// A library of the GPU's driver, opened at run time: penstock links neither libcuda nor libnvidia-ml. Used
// for NVML (nvml.hpp), for what CUDA's runtime lacks (cuda/cuda_context.cpp) and by penstock-probe.
#pragma once

#include "runtime/base/shared_library.hpp"

namespace penstock::device {

class driver_library : public shared_library {
 public:
  /// Found by the dynamic loader; with a root other than "/", in the library folders below it. The name of its
  /// path() ends with the driver's version.
  explicit driver_library(const std::string& name, const std::string& root = "/");
};

}  // namespace penstock::device
