#include "actors/remote/host_security.hpp"

#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"
#include "runtime/net/group_secret.hpp"
#include "runtime/net/tls/stretched_secret.hpp"


namespace penstock::hosts {
namespace {

// Differs from a group's identities, so that a secret used for both gives different keys. The two directions have different keys
// as well, so that a peer cannot connect a session or a host to itself.
constexpr const char* identity_of_joining = "penstock hosts";
constexpr const char* identity_of_called = "penstock hosts that are called";
constexpr std::string_view salt = "penstock hosts secret 1";

}  // namespace

result<group::group_address> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto port = colon == std::string_view::npos ? std::nullopt : whole_number<std::uint16_t>(text.substr(colon + 1));
  if (host.empty() || !port)
    return refuse(errc::config, "'{}' is not an address: it must be HOST:PORT", printable(shortened(text, 60)));
  return group::group_address{group::group_address::kind::tcp, std::string(host), *port};
}

result<std::shared_ptr<const group::tls_context>> tls_of_hosts(connection_side side, connected_by who, const group::group_address& at,
                                                               const hosts_secret& secret) {
  const bool host_connects = who == connected_by::host;
  if (secret.file.empty()) {
    if (secret.insecure) return std::shared_ptr<const group::tls_context>();
    return refuse(errc::config, "loader hosts {} at {}, and there is no secret: {}", host_connects ? "join" : "are called", text_of(at),
                  secret.remedy);
  }
  auto found = group::read_secret(secret.file, "the hosts'");
  if (!found) return tl::unexpected(std::move(found.error()));
  std::string key = std::move(found->bytes);
  if (!group::is_drawn({key})) {
    auto stretched = group::stretched(key, salt);
    if (!stretched) return tl::unexpected(std::move(stretched.error()));
    key = std::move(*stretched);
  }
  const bool connects = host_connects == (side == connection_side::host);
  return group::tls_context::make(connects ? group::tls_role::client : group::tls_role::server,
                                  host_connects ? identity_of_joining : identity_of_called, key);
}

}  // namespace penstock::hosts
