// Where loader hosts join or are called, and the secret that they share with their session (rule H7). Used by both sides.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/group/group_address.hpp"
#include "runtime/net/tls/tls_stream.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace penstock::hosts {

/// Parses "HOST:PORT" or "[v6]:port". Refuses (errc::config).
result<group::group_address> parse_address(std::string_view text);

enum class connection_side : std::uint8_t { session, host };
/// Who connects.
enum class connected_by : std::uint8_t { host, session };

struct hosts_secret {
  std::string file;  ///< empty: none
  bool insecure = false;
  std::string_view remedy;  ///< advice if the secret is missing, for messages: "give --secret-file ..., or --insecure ..."
};

/// The TLS context of one side of connections that `who` makes to `at`. Null: no encryption. Refuses (errc::config) a missing
/// secret, unless `insecure`, and whatever read_secret refuses. Blocks while it reads the file, and for a quarter of a second if
/// the secret is a passphrase.
result<std::shared_ptr<const group::tls_context>> tls_of_hosts(connection_side side, connected_by who, const group::group_address& at,
                                                               const hosts_secret& secret);

}  // namespace penstock::hosts
