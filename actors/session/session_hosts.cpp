#include "actors/protocol/config_bytes.hpp"
#include "actors/remote/packing.hpp"
#include "actors/remote/seat_security.hpp"
#include "actors/session/session_body.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/group/this_process.hpp"

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

/// Reads a file: before any thread exists that may not wait.
result<Session::body::keys_of_hosts> Session::body::security_of_hosts() const {
  const hosts_config& rules = settings_.loader.hosts;
  const hosts::seat_secret secret{rules.secret_file, rules.insecure, "set [loader.hosts] secret_file, and --secret-file of hosts,"};
  const auto made = [&](const std::string& where, hosts::connected_by who) -> result<std::shared_ptr<const group::tls_context>> {
    auto address = hosts::parse_address(where);
    if (!address) return tl::unexpected(std::move(address.error()));
    return hosts::tls_of_seats(hosts::seat_side::session, who, *address, secret);
  };
  keys_of_hosts keys;
  if (!rules.listen.empty()) {
    auto tls = made(rules.listen, hosts::connected_by::host);
    if (!tls) return tl::unexpected(std::move(tls.error()));
    keys.join = std::move(*tls);
  }
  if (!rules.connect.empty()) {
    auto tls = made(rules.connect.front(), hosts::connected_by::session);
    if (!tls) return tl::unexpected(std::move(tls.error()));
    keys.call = std::move(*tls);
  }
  return keys;
}

/// Before the supervisor, which starts workers through it.
result<void> Session::body::make_hub(engine& e, const keys_of_hosts& keys) {
  const hosts_config& rules = settings_.loader.hosts;
  if (!has_hosts(settings_.loader) || !e.dataset) return {};
  if (auto packs = hosts::packer::open(rules.compress); !packs) return tl::unexpected(std::move(packs.error()));
  hosts::hub_settings hub;
  if (!rules.listen.empty()) {
    auto address = hosts::parse_address(rules.listen);
    if (!address) return tl::unexpected(std::move(address.error()));
    hub.address = std::move(*address);
  }
  for (const std::string& one : rules.connect) {
    auto address = hosts::parse_address(one);
    if (!address) return tl::unexpected(std::move(address.error()));
    hub.called.push_back(std::move(*address));
  }
  hub.book = {.first_place = first_remote_place_of(settings_.loader), .places = remote_workers_max, .lost_after = rules.lost_after};
  hub.wait = rules.wait;
  hub.has_local_workers = workers_ > 0;
  hosts::seat_surroundings seats;
  seats.session = settings_.name;
  seats.version = PENSTOCK_VERSION;
  seats.config = protocol::config_as_bytes(config_for_hosts(settings_));
  seats.dataset = e.dataset->description;
  seats.process = group::number_of_this_process();
  seats.tls = keys.join;
  seats.tls_of_calls = keys.call;
  seats.compress = rules.compress;
  const bool encrypted = !rules.secret_file.empty();
  seats.digests = rules.verify == verify_rule::always || (rules.verify == verify_rule::automatic && !encrypted);
  seats.lost_after = rules.lost_after;
  seats.arena = e.memory->fd();
  seats.flights = e.flights;
  e.hub = std::make_shared<hosts::host_hub>(*e.io, hub, std::move(seats), host_board_);
  return {};
}

}  // namespace penstock
