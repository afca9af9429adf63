#include "actors/protocol/config_bytes.hpp"
#include "actors/session/session_body.hpp"
#include "runtime/base/worker_places.hpp"

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

/// Describes a custom dataset with the session's own program, even without local workers: a host's program
/// must describe it in the same way.
result<void> Session::body::describe_for_hosts(engine& e) {
  if (!has_hosts(settings_.loader) || !hosts::is_custom(settings_)) return {};
  auto described = hosts::describe_custom(settings_, &given_up_);
  if (!described && described.error().code == errc::stopped) return {};  // the session is stopped while it starts, and needs no hosts
  if (!described) return tl::unexpected(std::move(described.error()));
  e.custom = std::move(*described);
  return {};
}

/// Call before the supervisor is created: it starts remote workers through the hub.
void Session::body::make_hub(engine& e, const hosts::hosts_setup& setup) {
  if (!e.dataset && !e.custom) return;
  hosts::connection_deps deps = hosts::deps_of(settings_, setup, PENSTOCK_VERSION);
  deps.config = protocol::config_as_bytes(config_for_hosts(settings_));
  deps.dataset = e.custom ? e.custom->dataset : e.dataset->description;
  if (e.custom) {
    for (const auto& [name, value] : e.custom->facts) deps.program_facts[name] = value;
  }
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
