#include "runtime/storage/curl_library.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace penstock {

result<curl_library> curl_library::open(const char* name) {
  void* const opened = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const why = ::dlerror();
    return refuse(errc::config,
                  "reading from object storage needs libcurl: {} (the package libcurl4, or libcurl4t64, has it)",
                  why != nullptr ? why : name);
  }
  curl_library library;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* function_name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(opened, function_name));
    if (function == nullptr) missing = function_name;
  };
#define PENSTOCK_CURL_FIND(function) find(library.function, #function);
  PENSTOCK_CURL_FUNCTIONS(PENSTOCK_CURL_FIND)
#undef PENSTOCK_CURL_FIND
  if (missing != nullptr) {
    ::dlclose(opened);
    return refuse(errc::config, "reading from object storage needs libcurl 7.68 or later: {} has no function {}", name,
                  missing);
  }
  return library;
}

result<const curl_library*> curl_library::get() {
  static const result<curl_library> library = [] {
    auto opened = open("libcurl.so.4");
    if (opened) opened->curl_global_init(CURL_GLOBAL_DEFAULT);
    return opened;
  }();
  if (!library) return tl::unexpected(library.error());
  return &*library;
}

}  // namespace penstock
