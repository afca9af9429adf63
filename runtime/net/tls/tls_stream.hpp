// TLS 1.3 with a pre-shared secret over any transport: plain bytes go in, encrypted bytes to send come out,
// and the reverse. No socket, no waiting. Used by the links of a group.
//
// Both sides prove that they have the secret: there are no certificates, and a peer that shows one instead is
// refused. Each connection has new keys (psk_dhe_ke), so a secret that leaks later does not expose earlier
// traffic. One cipher suite, TLS_AES_256_GCM_SHA384; no tickets, no resumption, no early data.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace penstock::group {

enum class tls_role : std::uint8_t { client, server };

enum class tls_trouble : std::uint8_t {
  garbage,         ///< no TLS, or invalid TLS
  wrong_secret,    ///< the peer has another secret
  wrong_identity,  ///< the peer belongs to another group
};

struct tls_failure {
  tls_trouble kind = tls_trouble::garbage;
  std::string text;
};

/// State that the connections of one side share.
class tls_context {
 public:
  /// `identity` names the group; it is sent in the clear. Opens OpenSSL. Refuses (errc::config) if there is
  /// none.
  static result<std::shared_ptr<const tls_context>> make(tls_role role, const std::string& identity,
                                                         std::string_view secret);
  ~tls_context();
  tls_context(const tls_context&) = delete;
  tls_context& operator=(const tls_context&) = delete;

 private:
  friend class tls_stream;
  struct body;
  explicit tls_context(std::unique_ptr<body> its);
  std::unique_ptr<body> body_;
};

class tls_stream {
 public:
  /// A client has bytes to send at once.
  explicit tls_stream(std::shared_ptr<const tls_context> context);
  ~tls_stream();
  tls_stream(const tls_stream&) = delete;
  tls_stream& operator=(const tls_stream&) = delete;

  /// Takes bytes from the peer; appends the decrypted text to `plain`. After a failure there may be bytes
  /// left to send, which tell the peer about it.
  tl::expected<void, tls_failure> feed(std::string_view from_peer, std::string& plain);
  /// Call it only when established().
  void write(std::string_view plain);
  /// Appends the bytes to send.
  void take(std::string& to_peer);

  /// Whether the peer has proved that it has the secret, and is connected now.
  [[nodiscard]] bool established() const noexcept { return established_; }
  /// Whether a peer with the secret wrote the first message. The message may still be a replay.
  [[nodiscard]] bool proven() const noexcept { return proven_; }

 private:
  struct body;
  tl::expected<void, tls_failure> shake_hands();
  [[nodiscard]] tls_failure failure_now(int status) const;

  std::unique_ptr<body> body_;
  bool established_ = false;
  bool proven_ = false;
};

}  // namespace penstock::group
