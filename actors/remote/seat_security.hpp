// Where loader hosts join, and the secret that they share with their session (rule H7). Used by both sides.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/group/group_address.hpp"
#include "runtime/net/tls/tls_stream.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace penstock::hosts {

/// "HOST:PORT", "[v6]:port". Refuses (errc::config).
result<group::group_address> parse_address(std::string_view text);

struct seat_secret {
  std::string file;  ///< empty: none
  bool insecure = false;
  std::string_view how;  ///< how to give a secret, for texts: "set [loader.hosts] secret_file"
};

/// Null: no encryption. Refuses (errc::config) what find_secret refuses, and having no secret unless `insecure`. Blocks
/// while it reads the file, and for a quarter of a second if the secret is a passphrase.
result<std::shared_ptr<const group::tls_context>> tls_of_seats(group::tls_role role, const group::group_address& at,
                                                               const seat_secret& secret);

}  // namespace penstock::hosts
