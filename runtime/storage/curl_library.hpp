// libcurl's functions, from this machine's libcurl.so.4. It is opened only when a path is a URL. Only the
// transfers use it; no other file includes curl's headers. It is not linked for two reasons: every worker
// would load the twenty libraries that it depends on, and a release must also run without it.
#pragma once

#include "runtime/base/result.hpp"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

namespace penstock {

// clang-format off
#define PENSTOCK_CURL_FUNCTIONS(X)                                                                      \
  X(curl_global_init) X(curl_easy_init) X(curl_easy_cleanup) X(curl_easy_setopt) X(curl_easy_getinfo)   \
  X(curl_easy_strerror) X(curl_slist_append) X(curl_slist_free_all)                                     \
  X(curl_multi_init) X(curl_multi_cleanup) X(curl_multi_add_handle) X(curl_multi_remove_handle)         \
  X(curl_multi_perform) X(curl_multi_poll) X(curl_multi_wakeup) X(curl_multi_info_read) X(curl_multi_setopt)
// clang-format on

struct curl_library {
#define PENSTOCK_CURL_POINTER(name) decltype(&::name) name = nullptr;
  PENSTOCK_CURL_FUNCTIONS(PENSTOCK_CURL_POINTER)
#undef PENSTOCK_CURL_POINTER

  /// Thread-safe; the library stays loaded. Refuses (errc::config) if it is missing or lacks a function.
  static result<const curl_library*> get();
  /// Opens the library from the file of this name; for get() and tests.
  static result<curl_library> open(const char* name);
};

}  // namespace penstock
