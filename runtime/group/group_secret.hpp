// The secret that the ranks of a group share, when they are on several hosts (rule N5): where it comes from, and
// whether links may be made without one. Used when a session joins a group, and by the links.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/group/group_address.hpp"

#include <optional>
#include <string>

namespace penstock::group {

/// Not printed anywhere.
struct group_secret {
  std::string bytes;
};

inline constexpr std::size_t secret_bytes_min = 16;
inline constexpr std::size_t secret_bytes_max = 4096;

/// Whether it is 32 random bytes in hexadecimal digits, as 'penstock secret' and 'openssl rand -hex 32' draw them: nobody
/// guesses those. Anything else may be a sentence that somebody remembers.
[[nodiscard]] bool is_drawn(const group_secret& secret);

/// From `file` ([group] secret_file; empty: none), else PENSTOCK_GROUP_SECRET; none where neither is given. White space
/// at the end does not count. Refuses (errc::config) a file that others than its owner may read or write, naming its
/// mode, one that belongs to another user, and a secret that is too short or too long. Blocks as reading a file does.
result<std::optional<group_secret>> find_secret(const std::string& file, const environment& variables);

/// Refuses (errc::config) links between hosts without a secret, unless they are wanted, and says what to do.
result<void> check_secret(const group_address& address, bool has_secret, bool insecure);

/// What links of `group` that meet at `address` are made with: find_secret() and check_secret(). Over the network a
/// secret that was not drawn is stretched (tls/stretched_secret.hpp), which takes a quarter of a second.
result<std::optional<group_secret>> secret_of_links(const group_address& address, const std::string& group,
                                                    const std::string& file, bool insecure,
                                                    const environment& variables);

}  // namespace penstock::group
