#include "actors/protocol/config_bytes.hpp"
#include "actors/session/session_body.hpp"

namespace penstock {
namespace {

/// Removes the settings that hosts do not need.
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
  hosts::connection_deps deps = hosts::deps_of(settings_, setup, PENSTOCK_VERSION);
  deps.config = protocol::config_as_bytes(config_for_hosts(settings_));
  deps.dataset = e.dataset->description;
  deps.arena = e.memory->fd();
  deps.flights = e.flights;
  deps.waited = [this] { return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(board_.waited_seconds(now()))); };
  e.hub = std::make_shared<hosts::host_hub>(*e.io, setup.hub, std::move(deps), host_board_,
                                            [this](event_kind kind, const std::string& host, const std::string& text) {
                                              tell(host::event_of_host(kind, host, text));
                                            });
  e.remote_times = [hub = e.hub](std::uint32_t worker) { return hub->times_of(worker); };
}

}  // namespace penstock
