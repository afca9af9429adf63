#include "runtime/net/tls/tls_library.hpp"
#include "runtime/net/tls/tls_stream.hpp"

#include <catch2/catch_test_macros.hpp>
#include <openssl/ec.h>
#include <openssl/x509.h>

#include <optional>
#include <random>

using namespace penstock;
using namespace penstock::group;

namespace {

const std::string secret = "a secret that both sides have";

std::shared_ptr<const tls_context> context(tls_role role, const std::string& its_secret = secret,
                                           const std::string& identity = "penstock/job7/train") {
  return tls_context::make(role, identity, its_secret).value();
}

/// One end: the bytes that it has read, and the error with which it failed.
struct end_of_tls {
  explicit end_of_tls(std::shared_ptr<const tls_context> its) : stream(std::move(its)) {}
  tls_stream stream;
  std::string plain{};
  std::optional<tls_failure> failure{};

  void feed(std::string_view bytes) {
    if (failure) return;
    if (auto ok = stream.feed(bytes, plain); !ok) failure = ok.error();
  }
};

/// Carries bytes both ways, in pieces of at most this size, until no bytes are left.
void exchange(end_of_tls& a, end_of_tls& b, std::size_t piece = 100'000) {
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      std::string bytes;
      from->stream.take(bytes);
      for (std::size_t at = 0; at < bytes.size(); at += piece)
        to->feed(std::string_view(bytes).substr(at, piece));
      moved = moved || !bytes.empty();
    }
  }
}

/// An ordinary server, with a self-signed certificate.
class certificate_server {
 public:
  certificate_server() {
    EVP_PKEY* const key = EVP_EC_gen("P-256");
    X509* const certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    context_ = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(context_, certificate);
    SSL_CTX_use_PrivateKey(context_, key);
    connection_ = SSL_new(context_);
    SSL_set_bio(connection_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(connection_);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  certificate_server(const certificate_server&) = delete;
  certificate_server& operator=(const certificate_server&) = delete;
  ~certificate_server() {
    SSL_free(connection_);
    SSL_CTX_free(context_);
  }
  std::string answer(const std::string& bytes) {
    BIO_write(SSL_get_rbio(connection_), bytes.data(), static_cast<int>(bytes.size()));
    SSL_do_handshake(connection_);
    std::string said(BIO_ctrl_pending(SSL_get_wbio(connection_)), '\0');
    BIO_read(SSL_get_wbio(connection_), said.data(), static_cast<int>(said.size()));
    return said;
  }

 private:
  SSL_CTX* context_ = nullptr;
  SSL* connection_ = nullptr;
};

}  // namespace

TEST_CASE("two sides with one secret exchange messages, however the bytes are split") {
  for (const std::size_t piece : {1UL, 2UL, 5UL, 100UL, 100'000UL}) {
    end_of_tls client(context(tls_role::client));
    end_of_tls server(context(tls_role::server));
    exchange(client, server, piece);
    INFO((client.failure ? client.failure->text : "")
         << " / " << (server.failure ? server.failure->text : ""));
    REQUIRE(client.stream.established());
    REQUIRE(server.stream.established());
    const std::string long_text(100'000, 'x');
    client.stream.write("to the server");
    client.stream.write(long_text);
    server.stream.write("to the client");
    exchange(client, server, piece);
    CHECK(server.plain == "to the server" + long_text);
    CHECK(client.plain == "to the client");
    CHECK_FALSE(client.failure);
    CHECK_FALSE(server.failure);
  }
}

TEST_CASE("a client that knows the secret has proven that with its first message") {
  end_of_tls client(context(tls_role::client));
  end_of_tls server(context(tls_role::server));
  std::string first;
  client.stream.take(first);
  CHECK(first.size() < 1000);
  server.feed(first);
  CHECK(server.stream.proven());
  CHECK_FALSE(server.stream.established());
  // A peer that has only recorded the message can replay it, but gets no further.
  end_of_tls again(context(tls_role::server));
  again.feed(first);
  CHECK(again.stream.proven());
  again.feed(first);
  CHECK(again.failure);
  CHECK_FALSE(again.stream.established());
}

TEST_CASE("a wrong secret ends the handshake on both sides, and both report it") {
  end_of_tls client(context(tls_role::client, "another secret"));
  end_of_tls server(context(tls_role::server));
  exchange(client, server);
  REQUIRE(server.failure);
  CHECK(server.failure->kind == tls_trouble::wrong_secret);
  CHECK_FALSE(server.stream.proven());
  REQUIRE(client.failure);
  CHECK(client.failure->kind == tls_trouble::wrong_secret);
  CHECK(client.failure->text == "its secret is different");
}

TEST_CASE("a client of another group ends the handshake on both sides, even with this secret") {
  end_of_tls client(context(tls_role::client, secret, "penstock/job8/train"));
  end_of_tls server(context(tls_role::server));
  exchange(client, server);
  REQUIRE(server.failure);
  CHECK(server.failure->kind == tls_trouble::wrong_identity);
  REQUIRE(client.failure);
  CHECK(client.failure->kind == tls_trouble::wrong_identity);
  CHECK_FALSE(client.stream.established());
}

TEST_CASE("a server that presents a certificate instead of knowing the secret is refused") {
  certificate_server server;
  end_of_tls client(context(tls_role::client));
  for (int i = 0; i < 4 && !client.failure; ++i) {
    std::string bytes;
    client.stream.take(bytes);
    client.feed(server.answer(bytes));
  }
  REQUIRE(client.failure);
  CHECK_FALSE(client.stream.established());
}

TEST_CASE("bytes other than TLS end the handshake without delivering data") {
  std::mt19937_64 random(1);
  std::string first;
  tls_stream(context(tls_role::client)).take(first);
  const auto server_side = context(tls_role::server);
  for (int i = 0; i < 300; ++i) {
    end_of_tls server(server_side);
    std::string bytes = first;
    if (i % 3 == 0) {
      for (char& c : bytes) c = static_cast<char>(random());
    } else {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    }
    server.feed(bytes);
    CHECK_FALSE(server.stream.established());
    CHECK(server.plain.empty());
  }
  end_of_tls server(server_side);
  server.feed("GET / HTTP/1.1\r\n\r\n");
  REQUIRE(server.failure);
  CHECK(server.failure->kind == tls_trouble::garbage);
  CHECK(server.failure->text == "TLS: http request");
}

TEST_CASE("a byte changed in transit ends the connection") {
  end_of_tls client(context(tls_role::client));
  end_of_tls server(context(tls_role::server));
  exchange(client, server);
  client.stream.write("an order");
  std::string bytes;
  client.stream.take(bytes);
  bytes.back() ^= 1;
  server.feed(bytes);
  CHECK(server.failure);
  CHECK(server.plain.empty());
}

TEST_CASE("without OpenSSL, the refusal says what to install") {
  const auto missing = tls_library::open("libssl-that-is-nowhere.so.3");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::config);
  CHECK(missing.error().message.find("libssl-that-is-nowhere.so.3") != std::string::npos);
  CHECK(missing.error().message.find("libssl3t64") != std::string::npos);
  const auto other = tls_library::open("libm.so.6");
  REQUIRE_FALSE(other);
  CHECK(other.error().message.find("has no function") != std::string::npos);
}
