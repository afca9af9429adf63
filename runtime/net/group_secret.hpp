// The secret that the ranks of a group share if they are on several hosts (rule N5): where it comes from, and
// whether links may be made without one. Used when a session joins a group, and by the links.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/group/group_address.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace penstock::group {

/// Never printed.
struct group_secret {
  std::string bytes;
};

inline constexpr std::size_t secret_bytes_min = 16;
inline constexpr std::size_t secret_bytes_max = 4096;

/// Whether the secret is 32 random bytes in hexadecimal digits, as 'penstock secret' and 'openssl rand
/// -hex 32' print them. Such a secret cannot be guessed; any other may be a memorable sentence.
[[nodiscard]] bool is_drawn(const group_secret& secret);

/// The secret in `file`. Messages call it `whose` secret: "the group's". Ignores white space at the end. Refuses
/// (errc::config) a file that users other than its owner may read or write, naming its mode, a file of another user,
/// and a secret that is too short or too long. Blocks while it reads the file.
result<group_secret> read_secret(const std::string& file, std::string_view whose);

/// The secret from `file` ([group] secret_file; empty: no file), read as read_secret() does; else from
/// PENSTOCK_GROUP_SECRET; else none.
result<std::optional<group_secret>> find_secret(const std::string& file, const variable_lookup& variables);

/// Refuses (errc::config) links between hosts without a secret, unless `insecure` allows them; the message
/// says what to do.
result<void> check_secret(const group_address& address, bool has_secret, bool insecure);

/// The secret for links of `group` that meet at `address`: find_secret() and check_secret(). For network
/// links, a secret that does not consist of random bytes is stretched (tls/stretched_secret.hpp), which
/// takes a quarter of a second.
result<std::optional<group_secret>> secret_of_links(const group_address& address, const std::string& group,
                                                    const std::string& file, bool insecure,
                                                    const variable_lookup& variables);

}  // namespace penstock::group
