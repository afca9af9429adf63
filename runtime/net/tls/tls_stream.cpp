#include "runtime/net/tls/tls_stream.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/text.hpp"
#include "runtime/net/tls/tls_library.hpp"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <new>

namespace penstock::group {
namespace {

constexpr const char* cipher_suite = "TLS_AES_256_GCM_SHA384";
constexpr std::array<unsigned char, 2> cipher_suite_number{0x13, 0x02};
constexpr const char* key_agreement = "X25519:P-256";
constexpr std::size_t key_bytes = 48;  // of SHA-384
constexpr std::size_t identity_shown_max = 80;

using key = std::array<unsigned char, key_bytes>;

/// Derives a key, because the secret may be a sentence of any length and a key must serve only one purpose.
bool derive(const tls_library& ssl, std::string_view secret, const std::string& identity, key& made) {
  const std::string purpose = "penstock group link 1: " + identity;
  unsigned length = 0;
  return ssl.HMAC(ssl.EVP_sha384(), secret.data(), static_cast<int>(secret.size()),
                  reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size(), made.data(),
                  &length) != nullptr &&
         length == made.size();
}

std::string reason_of(const tls_library& ssl, unsigned long code) {
  const char* const text = code != 0 ? ssl.ERR_reason_error_string(code) : nullptr;
  return text != nullptr ? text : "the connection broke off";
}

}  // namespace

struct tls_context::body {
  const tls_library* ssl = nullptr;
  SSL_CTX* context = nullptr;
  SSL_SESSION* session = nullptr;  // the properties of a connection with this secret
  tls_role role = tls_role::client;
  std::string identity;

  body() = default;
  body(const body&) = delete;
  body& operator=(const body&) = delete;
  ~body() {
    if (session != nullptr) ssl->SSL_SESSION_free(session);
    if (context != nullptr) ssl->SSL_CTX_free(context);
  }

  /// OpenSSL's callbacks get our arguments only through the connection.
  static const body& of(SSL* connection) {
    const tls_library& library = **tls_library::get();  // loaded already, because there is a connection
    return *static_cast<const body*>(library.SSL_CTX_get_ex_data(library.SSL_get_SSL_CTX(connection), 0));
  }

  [[nodiscard]] bool configure();
  [[nodiscard]] bool make_session(std::string_view secret);
  static int offer(SSL* connection, const EVP_MD* digest, const unsigned char** identity, std::size_t* length,
                   SSL_SESSION** session);
  static int find(SSL* connection, const unsigned char* identity, std::size_t length, SSL_SESSION** session);
};

int tls_context::body::offer(SSL* connection, const EVP_MD* /*digest*/, const unsigned char** identity,
                             std::size_t* length, SSL_SESSION** session) {
  const body& its = of(connection);
  if (its.ssl->SSL_SESSION_up_ref(its.session) != 1) return 0;
  *session = its.session;
  *identity = reinterpret_cast<const unsigned char*>(its.identity.data());
  *length = its.identity.size();
  return 1;
}

int tls_context::body::find(SSL* connection, const unsigned char* identity, std::size_t length,
                            SSL_SESSION** session) {
  const body& its = of(connection);
  *session = nullptr;
  if (length != its.identity.size() || std::memcmp(identity, its.identity.data(), length) != 0) {
    if (auto* const other = static_cast<std::string*>(its.ssl->SSL_get_ex_data(connection, 0)))
      *other = printable(shortened({reinterpret_cast<const char*>(identity), length}, identity_shown_max));
    return 1;  // the handshake continues without a session, and fails because there is no certificate
  }
  if (its.ssl->SSL_SESSION_up_ref(its.session) != 1) return 0;
  *session = its.session;
  return 1;
}

bool tls_context::body::configure() {
  context = ssl->SSL_CTX_new(role == tls_role::client ? ssl->TLS_client_method() : ssl->TLS_server_method());
  if (context == nullptr) return false;
  ssl->SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  const auto control = [this](int what, long number, const char* text) {
    return ssl->SSL_CTX_ctrl(context, what, number, const_cast<char*>(text));
  };
  control(SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  control(SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, nullptr);
  if (role == tls_role::client) {
    // No certificate authority is trusted, so a server that shows a certificate instead of
    // proving the secret is refused.
    ssl->SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    ssl->SSL_CTX_set_psk_use_session_callback(context, &offer);
  } else {
    ssl->SSL_CTX_set_psk_find_session_callback(context, &find);
  }
  return control(SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr) == 1 &&
         control(SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, nullptr) == 1 &&
         control(SSL_CTRL_SET_GROUPS_LIST, 0, key_agreement) == 1 &&
         ssl->SSL_CTX_set_ciphersuites(context, cipher_suite) == 1 &&
         ssl->SSL_CTX_set_num_tickets(context, 0) == 1 && ssl->SSL_CTX_set_ex_data(context, 0, this) == 1;
}

bool tls_context::body::make_session(std::string_view secret) {
  key made{};
  if (!derive(*ssl, secret, identity, made)) return false;
  session = ssl->SSL_SESSION_new();
  SSL* const any = ssl->SSL_new(context);  // OpenSSL looks up ciphers only through a connection
  const SSL_CIPHER* const cipher =
      any != nullptr ? ssl->SSL_CIPHER_find(any, cipher_suite_number.data()) : nullptr;
  const bool good = session != nullptr && cipher != nullptr &&
                    ssl->SSL_SESSION_set1_master_key(session, made.data(), made.size()) == 1 &&
                    ssl->SSL_SESSION_set_cipher(session, cipher) == 1 &&
                    ssl->SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  ssl->OPENSSL_cleanse(made.data(), made.size());
  if (any != nullptr) ssl->SSL_free(any);
  return good;
}

tls_context::tls_context(std::unique_ptr<body> its) : body_(std::move(its)) {}
tls_context::~tls_context() = default;

result<std::shared_ptr<const tls_context>> tls_context::make(tls_role role, const std::string& identity,
                                                             std::string_view secret) {
  const auto library = tls_library::get();
  if (!library) return tl::unexpected(library.error());
  auto its = std::make_unique<body>();
  its->ssl = *library;
  its->role = role;
  its->identity = identity;
  its->ssl->ERR_clear_error();
  if (!its->configure() || !its->make_session(secret)) {
    return refuse(errc::config, "OpenSSL refuses to encrypt the links of the group ({} with a secret): {}",
                  cipher_suite, reason_of(*its->ssl, its->ssl->ERR_get_error()));
  }
  return std::shared_ptr<const tls_context>(new tls_context(std::move(its)));
}

struct tls_stream::body {
  std::shared_ptr<const tls_context> context;
  const tls_library& ssl;
  SSL* connection = nullptr;
  BIO* in = nullptr;  // both buffers belong to the connection
  BIO* out = nullptr;
  std::string other_identity{};  // the identity that a client asked for, if it is not ours

  explicit body(std::shared_ptr<const tls_context> of) : context(std::move(of)), ssl(*context->body_->ssl) {}
  body(const body&) = delete;
  body& operator=(const body&) = delete;
  ~body() {
    if (connection != nullptr) ssl.SSL_free(connection);
  }
};

tls_stream::tls_stream(std::shared_ptr<const tls_context> context)
    : body_(std::make_unique<body>(std::move(context))) {
  const tls_library& ssl = body_->ssl;
  body_->in = ssl.BIO_new(ssl.BIO_s_mem());
  body_->out = ssl.BIO_new(ssl.BIO_s_mem());
  body_->connection = ssl.SSL_new(body_->context->body_->context);
  if (body_->in == nullptr || body_->out == nullptr || body_->connection == nullptr) {
    if (body_->in != nullptr) ssl.BIO_free(body_->in);
    if (body_->out != nullptr) ssl.BIO_free(body_->out);
    throw std::bad_alloc();
  }
  ssl.SSL_set_bio(body_->connection, body_->in, body_->out);
  // An empty buffer means "later", not "the end".
  ssl.BIO_ctrl(body_->in, BIO_C_SET_BUF_MEM_EOF_RETURN, -1, nullptr);
  ssl.SSL_set_ex_data(body_->connection, 0, &body_->other_identity);
  if (body_->context->body_->role == tls_role::client) {
    ssl.SSL_set_connect_state(body_->connection);
    static_cast<void>(shake_hands());
  } else {
    ssl.SSL_set_accept_state(body_->connection);
  }
}

tls_stream::~tls_stream() = default;

tls_failure tls_stream::failure_now(int status) const {
  const tls_library& ssl = body_->ssl;
  const int how = ssl.SSL_get_error(body_->connection, status);
  if (how == SSL_ERROR_ZERO_RETURN) return {tls_trouble::garbage, "the peer closed the connection"};
  const unsigned long code = ssl.ERR_get_error();
  ssl.ERR_clear_error();
  const int reason = ERR_GET_REASON(code);
  const std::string& ours = body_->context->body_->identity;
  if (!body_->other_identity.empty())
    return {tls_trouble::wrong_identity, fmt::format("it wants '{}', but this is '{}'", body_->other_identity, ours)};
  // A server sends this alert to a client whose secret differs.
  if (reason == SSL_R_BINDER_DOES_NOT_VERIFY || reason == SSL_R_TLSV1_ALERT_DECRYPT_ERROR ||
      reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER)
    return {tls_trouble::wrong_secret, "its secret is different"};
  if (reason == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE)
    return {tls_trouble::wrong_identity, fmt::format("it is not '{}', or does not know this secret", ours)};
  return {tls_trouble::garbage, "TLS: " + reason_of(ssl, code)};
}

tl::expected<void, tls_failure> tls_stream::shake_hands() {
  const tls_library& ssl = body_->ssl;
  ssl.ERR_clear_error();
  const int status = ssl.SSL_do_handshake(body_->connection);
  proven_ = ssl.SSL_session_reused(body_->connection) == 1;
  if (status == 1) {
    if (!proven_) return tl::unexpected(tls_failure{tls_trouble::wrong_secret, "it did not use the secret"});
    established_ = true;
    return {};
  }
  if (ssl.SSL_get_error(body_->connection, status) == SSL_ERROR_WANT_READ) return {};
  return tl::unexpected(failure_now(status));
}

tl::expected<void, tls_failure> tls_stream::feed(std::string_view from_peer, std::string& plain) {
  const tls_library& ssl = body_->ssl;
  if (from_peer.empty()) return {};
  if (ssl.BIO_write(body_->in, from_peer.data(), static_cast<int>(from_peer.size())) !=
      static_cast<int>(from_peer.size())) {
    throw std::bad_alloc();
  }
  if (!established_) {
    if (auto ok = shake_hands(); !ok) return ok;
    if (!established_) return {};
  }
  std::array<char, 16 * 1024> some{};
  while (true) {
    ssl.ERR_clear_error();
    const int got = ssl.SSL_read(body_->connection, some.data(), static_cast<int>(some.size()));
    if (got <= 0) {
      if (ssl.SSL_get_error(body_->connection, got) == SSL_ERROR_WANT_READ) return {};
      return tl::unexpected(failure_now(got));
    }
    plain.append(some.data(), static_cast<std::size_t>(got));
  }
}

void tls_stream::write(std::string_view plain) {
  PENSTOCK_CHECK(established_, "cannot encrypt before the handshake is complete");
  const tls_library& ssl = body_->ssl;
  ssl.ERR_clear_error();
  // A buffer in memory accepts all bytes.
  if (ssl.SSL_write(body_->connection, plain.data(), static_cast<int>(plain.size())) <= 0)
    throw std::bad_alloc();
}

void tls_stream::take(std::string& to_peer) {
  const tls_library& ssl = body_->ssl;
  const std::size_t waiting = ssl.BIO_ctrl_pending(body_->out);
  if (waiting == 0) return;
  const std::size_t begin = to_peer.size();
  to_peer.resize(begin + waiting);
  const int got = ssl.BIO_read(body_->out, to_peer.data() + begin, static_cast<int>(waiting));
  to_peer.resize(begin + static_cast<std::size_t>(got > 0 ? got : 0));
}

}  // namespace penstock::group
