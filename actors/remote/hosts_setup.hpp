// What a session or pool needs from [loader.hosts], read and checked before its threads exist.
#pragma once

#include "actors/remote/host_hub.hpp"

#include <penstock/config.hpp>

namespace penstock::hosts {

struct hosts_setup {
  hub_settings hub;
  std::shared_ptr<const group::tls_context> tls{};           ///< for hosts that join; null: not encrypted
  std::shared_ptr<const group::tls_context> tls_of_calls{};  ///< for hosts that the session calls
};

/// Reads [loader.hosts]; null if there are no hosts. Also reads the file with the secret, so call it where blocking is harmless. Refuses
/// (errc::config) a bad address, a secret that tls_of_hosts refuses, and a missing library for `compress`.
result<std::unique_ptr<const hosts_setup>> read_hosts(const loader_config& loader, bool has_local_workers);

/// What connections depend on, without the dataset, the program and the arena: the caller adds
/// these. `version`: penstock's.
[[nodiscard]] connection_deps deps_of(const config& settings, const hosts_setup& setup, std::string version);

}  // namespace penstock::hosts
