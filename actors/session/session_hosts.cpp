#include "actors/protocol/config_bytes.hpp"
#include "actors/remote/seat_security.hpp"
#include "actors/session/session_body.hpp"
#include "runtime/base/worker_places.hpp"

namespace penstock {
namespace {

/// What hosts need not know stays here.
config config_for_hosts(config settings) {
  settings.loader.command = loader_config().command;
  settings.loader.env.clear();
  settings.loader.hosts.secret_file.clear();
  settings.group.secret_file.clear();
  settings.vars.clear();
  return settings;
}

}  // namespace

/// Reads a file: before any thread exists that may not wait. Null: no encryption, or no hosts.
result<std::shared_ptr<const group::tls_context>> Session::body::security_of_hosts() const {
  const hosts_config& rules = settings_.loader.hosts;
  if (rules.listen.empty()) return std::shared_ptr<const group::tls_context>();
  auto address = hosts::parse_address(rules.listen);
  if (!address) return tl::unexpected(std::move(address.error()));
  return hosts::tls_of_seats(group::tls_role::server, *address,
                             {rules.secret_file, rules.insecure, "set [loader.hosts] secret_file, and --secret-file of hosts,"});
}

/// Before the supervisor, which starts workers through it.
result<void> Session::body::make_hub(engine& e, std::shared_ptr<const group::tls_context> tls) {
  const hosts_config& rules = settings_.loader.hosts;
  if (rules.listen.empty() || !e.dataset) return {};
  auto address = hosts::parse_address(rules.listen);
  if (!address) return tl::unexpected(std::move(address.error()));
  hosts::hub_settings hub;
  hub.address = std::move(*address);
  hub.book = {.first_place = first_remote_place_of(settings_.loader), .places = remote_workers_max, .lost_after = rules.lost_after};
  hub.wait = rules.wait;
  hub.has_local_workers = workers_ > 0;
  hosts::seat_surroundings seats;
  seats.session = settings_.name;
  seats.version = PENSTOCK_VERSION;
  seats.config = protocol::config_as_bytes(config_for_hosts(settings_));
  seats.dataset = e.dataset->description;
  seats.digests = rules.verify == verify_rule::always || (rules.verify == verify_rule::automatic && !tls);
  seats.tls = std::move(tls);
  seats.lost_after = rules.lost_after;
  seats.arena = e.memory->fd();
  seats.flights = e.flights;
  e.hub = std::make_shared<hosts::host_hub>(*e.io, hub, std::move(seats), host_board_);
  return {};
}

}  // namespace penstock
