// A library of the driver, opened at run time: penstock-probe links neither libcuda nor libnvidia-ml.
#pragma once

#include <string>

namespace penstock::probe {

class driver_library {
 public:
  /// As the dynamic loader finds it; with a root other than "/" in the library folders below that. Tells
  /// "path" or "load_error".
  driver_library(const std::string& name, const std::string& root);

  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }
  /// Sets the pointer; null and false if the library has no such function.
  template <class Function>
  bool find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(symbol(name));
    return function != nullptr;
  }

 private:
  [[nodiscard]] void* symbol(const char* name) const;
  void* handle_ = nullptr;  // never closed: the process ends soon, and drivers dislike it
};

}  // namespace penstock::probe
