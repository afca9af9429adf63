#include "runtime/storage/curl_library.hpp"

#include "runtime/base/shared_library.hpp"

namespace penstock {

result<curl_library> curl_library::open(const char* name) {
  const shared_library opened(name, shared_library::symbols::own_first);
  if (!opened)
    return refuse(errc::config,
                  "reading from object storage needs libcurl: {} (the package libcurl4, or libcurl4t64, provides it)",
                  opened.trouble());
  curl_library library;
  const char* missing = nullptr;
#define PENSTOCK_CURL_FIND(function) \
  if (!opened.find(#function, library.function)) missing = #function;
  PENSTOCK_CURL_FUNCTIONS(PENSTOCK_CURL_FIND)
#undef PENSTOCK_CURL_FIND
  if (missing != nullptr)
    return refuse(errc::config, "reading from object storage needs libcurl 7.68 or later: {} has no function {}", name,
                  missing);
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
