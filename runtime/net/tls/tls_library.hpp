// OpenSSL's functions, from the libssl.so.3 of this machine (or of the embedding Python), which is opened when a group's
// first link is encrypted. Used only by the sources of this folder. Why it is not linked: docs/decisions/0019.
#pragma once

#include "runtime/base/result.hpp"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

namespace penstock::group {

// clang-format off
#define PENSTOCK_TLS_FUNCTIONS(X)                                                                        \
  X(OPENSSL_init_ssl) X(TLS_client_method) X(TLS_server_method)                                          \
  X(SSL_CTX_new) X(SSL_CTX_free) X(SSL_CTX_ctrl) X(SSL_CTX_set_options) X(SSL_CTX_set_ciphersuites)      \
  X(SSL_CTX_set_num_tickets) X(SSL_CTX_set_verify) X(SSL_CTX_set_ex_data) X(SSL_CTX_get_ex_data)         \
  X(SSL_CTX_set_psk_use_session_callback) X(SSL_CTX_set_psk_find_session_callback)                       \
  X(SSL_new) X(SSL_free) X(SSL_set_bio) X(SSL_set_accept_state) X(SSL_set_connect_state)                 \
  X(SSL_do_handshake) X(SSL_read) X(SSL_write) X(SSL_get_error) X(SSL_session_reused) X(SSL_get_SSL_CTX) \
  X(SSL_set_ex_data) X(SSL_get_ex_data) X(SSL_CIPHER_find)                                               \
  X(SSL_SESSION_new) X(SSL_SESSION_free) X(SSL_SESSION_up_ref) X(SSL_SESSION_set1_master_key)            \
  X(SSL_SESSION_set_cipher) X(SSL_SESSION_set_protocol_version)                                          \
  X(BIO_new) X(BIO_free) X(BIO_s_mem) X(BIO_ctrl) X(BIO_read) X(BIO_write) X(BIO_ctrl_pending)           \
  X(ERR_clear_error) X(ERR_get_error) X(ERR_reason_error_string)                                         \
  X(HMAC) X(EVP_sha384) X(EVP_PBE_scrypt) X(OPENSSL_cleanse)
// clang-format on

struct tls_library {
#define PENSTOCK_TLS_POINTER(name) decltype(&::name) name = nullptr;
  PENSTOCK_TLS_FUNCTIONS(PENSTOCK_TLS_POINTER)
#undef PENSTOCK_TLS_POINTER

  /// Thread-safe; the library stays loaded. Refuses (errc::config) if it is missing or lacks a function.
  static result<const tls_library*> get();
  /// Opens the library from the file of this name; for get() and tests.
  static result<tls_library> open(const char* name);
};

}  // namespace penstock::group
