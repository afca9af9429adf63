#include "actors/remote/seat_security.hpp"

#include "runtime/base/text.hpp"
#include "runtime/net/group_secret.hpp"
#include "runtime/net/tls/stretched_secret.hpp"

#include <charconv>

namespace penstock::hosts {
namespace {

// Not a group's: a secret used for both gives different keys.
constexpr const char* identity = "penstock hosts";
constexpr std::string_view salt = "penstock hosts secret 1";

}  // namespace

result<group::group_address> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::uint16_t port = 0;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const char* const end = text.data() + text.size();
  const char* const digits = colon == std::string_view::npos ? end : text.data() + colon + 1;
  const auto [stop, status] = std::from_chars(digits, end, port);
  if (host.empty() || status != std::errc{} || stop != end)
    return refuse(errc::config, "'{}' is no address of a session: it must be HOST:PORT", printable(shortened(text, 60)));
  return group::group_address{group::group_address::kind::tcp, std::string(host), port};
}

result<std::shared_ptr<const group::tls_context>> tls_of_seats(group::tls_role role, const group::group_address& at,
                                                               const seat_secret& secret) {
  auto found = group::find_secret(secret.file, [](const std::string&) { return std::optional<std::string>(); });
  if (!found) return tl::unexpected(std::move(found.error()));
  if (!*found) {
    if (secret.insecure) return std::shared_ptr<const group::tls_context>();
    return refuse(errc::config,
                  "loader hosts join at {}, over the network, and there is no secret: {} to the same secret (penstock "
                  "secret) for the session and its hosts, or allow anyone who can reach that port with insecure",
                  text_of(at), secret.how);
  }
  std::string key = std::move((*found)->bytes);
  if (!group::is_drawn({key})) {
    auto stretched = group::stretched(key, salt);
    if (!stretched) return tl::unexpected(std::move(stretched.error()));
    key = std::move(*stretched);
  }
  return group::tls_context::make(role, identity, key);
}

}  // namespace penstock::hosts
