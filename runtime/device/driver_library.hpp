// A library of the GPU's driver, opened at run time: penstock links neither libcuda nor libnvidia-ml. Used
// for NVML (nvml.hpp), for what CUDA's runtime lacks (cuda/cuda_context.cpp) and by penstock-probe.
#pragma once

#include <string>

namespace penstock::device {

class driver_library {
 public:
  /// Found by the dynamic loader; with a root other than "/", in the library folders below it.
  explicit driver_library(const std::string& name, const std::string& root = "/");

  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }
  /// Why it could not be opened.
  [[nodiscard]] const std::string& trouble() const noexcept { return trouble_; }
  /// The file with all links resolved; its name ends with the driver's version. Empty if unknown.
  [[nodiscard]] std::string path() const;
  /// Sets the pointer; null and false if the library has no such function.
  template <class Function>
  bool find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(symbol(name));
    return function != nullptr;
  }

 private:
  [[nodiscard]] void* symbol(const char* name) const;
  void* handle_ = nullptr;  // never closed: not safe with all drivers
  std::string trouble_;
};

}  // namespace penstock::device
