// A library that is opened at run time. Builds and machines that do not use it do not need it. Used for OpenSSL,
// libcurl, zstd, LZ4, libwebp, NCCL, nvJPEG and the GPU's driver.
#pragma once

#include <string>

namespace penstock {

class shared_library {
 public:
  enum class symbols {
    as_found,
    own_first,  ///< the library prefers its own functions to the program's functions of the same names
  };

  /// `file`: a path, or a name that the dynamic loader looks up. The library stays loaded.
  explicit shared_library(const std::string& file, symbols which = symbols::as_found);
  /// Stands for a library that could not be opened.
  static shared_library missing(std::string trouble);

  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }
  /// Why it could not be opened.
  [[nodiscard]] const std::string& trouble() const noexcept { return trouble_; }
  /// The file with all links resolved. Empty if unknown.
  [[nodiscard]] std::string path() const;
  /// Sets the pointer; null and false if the library has no such function.
  template <class Function>
  bool find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(symbol(name));
    return function != nullptr;
  }

 private:
  shared_library() = default;
  [[nodiscard]] void* symbol(const char* name) const;

  void* handle_ = nullptr;  // never closed, because that is not safe with all drivers
  std::string trouble_;
};

}  // namespace penstock
