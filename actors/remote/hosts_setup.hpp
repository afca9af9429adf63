// What a session or pool needs of [loader.hosts], checked and read before its threads exist.
#pragma once

#include "actors/remote/host_hub.hpp"

#include <penstock/config.hpp>

namespace penstock::hosts {

struct hosts_setup {
  hub_settings hub;
  std::shared_ptr<const group::tls_context> tls{};           ///< of hosts that join; null: not encrypted
  std::shared_ptr<const group::tls_context> tls_of_calls{};  ///< of hosts that are called
};

/// Null: there are no hosts. Reads the file with the secret, so call it where nothing may be kept waiting. Refuses (errc::config)
/// an address that is none, a secret as tls_of_hosts does, and a missing library for `compress`.
result<std::unique_ptr<const hosts_setup>> read_hosts(const loader_config& loader, bool has_local_workers);

/// All but what is loaded, and where it lands. `version`: of penstock.
[[nodiscard]] connection_deps deps_of(const config& settings, const hosts_setup& setup, std::string version);

}  // namespace penstock::hosts
