#include "actors/protocol/config_bytes.hpp"
#include "actors/session/session_body.hpp"

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

/// Before the supervisor, which starts workers through it.
void Session::body::make_hub(engine& e, const hosts::hosts_setup& setup) {
  if (!e.dataset) return;
  hosts::seat_surroundings seats = hosts::surroundings_of(settings_, setup, PENSTOCK_VERSION);
  seats.config = protocol::config_as_bytes(config_for_hosts(settings_));
  seats.dataset = e.dataset->description;
  seats.arena = e.memory->fd();
  seats.flights = e.flights;
  e.hub = std::make_shared<hosts::host_hub>(*e.io, setup.hub, std::move(seats), host_board_);
}

}  // namespace penstock
