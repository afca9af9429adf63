#include "runtime/net/tls/tls_library.hpp"

#include <dlfcn.h>

namespace penstock::group {
namespace {

/// A program may have another version of OpenSSL linked in, under the same names. Programs with sanitizers
/// cannot prefer the library's own symbols.
int own_symbols_first() {
  const bool sanitized =
      ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr || ::dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
  return sanitized ? 0 : RTLD_DEEPBIND;
}

}  // namespace

result<tls_library> tls_library::open(const char* name) {
  void* const opened = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | own_symbols_first());
  if (opened == nullptr) {
    const char* const why = ::dlerror();
    return refuse(errc::config,
                  "encrypting the links of the group needs OpenSSL 3: {} (the package libssl3, or "
                  "libssl3t64, has it)",
                  why != nullptr ? why : name);
  }
  tls_library library;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* function_name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(opened, function_name));
    if (function == nullptr) missing = function_name;
  };
#define PENSTOCK_TLS_FIND(function) find(library.function, #function);
  PENSTOCK_TLS_FUNCTIONS(PENSTOCK_TLS_FIND)
#undef PENSTOCK_TLS_FIND
  if (missing != nullptr) {
    ::dlclose(opened);
    return refuse(errc::config, "encrypting the links of the group: {} has no function {}", name, missing);
  }
  return library;
}

result<const tls_library*> tls_library::get() {
  static const result<tls_library> library = [] {
    auto opened = open("libssl.so.3");
    // Threads may still run when the program calls exit(): OpenSSL must not free its data then.
    if (opened) opened->OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
    return opened;
  }();
  if (!library) return tl::unexpected(library.error());
  return &*library;
}

}  // namespace penstock::group
