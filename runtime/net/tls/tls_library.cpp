#include "runtime/net/tls/tls_library.hpp"

#include "runtime/base/shared_library.hpp"

namespace penstock::group {

result<tls_library> tls_library::open(const char* name) {
  // The embedding program may have linked another version of OpenSSL, whose
  // symbols have the same names.
  const shared_library opened(name, shared_library::symbols::own_first);
  if (!opened)
    return refuse(errc::config,
                  "connections with a secret need OpenSSL 3, which encrypts them: {} (the package libssl3, or libssl3t64, provides it)",
                  opened.trouble());
  tls_library library;
  const char* missing = nullptr;
#define PENSTOCK_TLS_FIND(function) \
  if (!opened.find(#function, library.function)) missing = #function;
  PENSTOCK_TLS_FUNCTIONS(PENSTOCK_TLS_FIND)
#undef PENSTOCK_TLS_FIND
  if (missing != nullptr)
    return refuse(errc::config, "connections with a secret: {} has no function {}", name, missing);
  return library;
}

result<const tls_library*> tls_library::get() {
  static const result<tls_library> library = [] {
    auto opened = open("libssl.so.3");
    // OpenSSL must not free its data in exit(), because threads may still run then.
    if (opened) opened->OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
    return opened;
  }();
  if (!library) return tl::unexpected(library.error());
  return &*library;
}

}  // namespace penstock::group
