// What the links of a group (runtime/net) report to its drivers: which links exist, and which peers were rejected.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::group {

/// Why a member has no link.
struct link_trouble {
  std::string why{};
  bool closed = false;  ///< the member had a link, which the other side closed
  bool operator==(const link_trouble&) const = default;
};

/// Numbers of one listener's links; never reused.
using link_id = std::uint64_t;

/// Why a connection did not become a link.
enum class unknown_peer_kind : std::uint8_t {
  other_user,     ///< a process of another user, on the same host
  garbage,        ///< sends bytes that no member would send
  no_secret,      ///< a member without a secret where one is needed, or with one where none is
  wrong_secret,   ///< a member with another secret, or of another group
  wrong_group,    ///< a member of another group
  wrong_version,  ///< a member of a different version of penstock
  too_slow,       ///< did not authenticate within the deadline
  crowded_out,    ///< was the oldest of too many connections
  count,
};
[[nodiscard]] const char* name_of(unknown_peer_kind kind) noexcept;

/// Unknown peers of one kind since the last report of this kind. The first is reported at once, later ones at
/// most every 10 s, as there may be thousands.
struct unknown_peer_news {
  unknown_peer_kind kind = unknown_peer_kind::garbage;
  std::uint64_t count = 0;
  std::string peer{};  ///< the last peer: "10.0.0.7:4711", or "pid 4711 of user 1000"
  std::string text{};  ///< why it was rejected
};
/// "10.0.0.7:4711 (another secret): its secret is different (x17)"
[[nodiscard]] std::string text_of(const unknown_peer_news& news);

}  // namespace penstock::group
