// The settings of every actor system in penstock, measured for CAF 0.17.6
// (docs/decisions/0002-caf-settings.md): the sharing scheduler uses no CPU when idle, whereas the default one
// polls at 1 % of a core.
#pragma once

#include <caf/actor_system_config.hpp>

namespace penstock::protocol {

class actor_settings : public caf::actor_system_config {
 public:
  /// threads: 2 in a session, 1 in a child.
  explicit actor_settings(std::size_t threads);
};

}  // namespace penstock::protocol
