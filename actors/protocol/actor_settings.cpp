#include "actors/protocol/actor_settings.hpp"

#include <caf/atom.hpp>

namespace penstock::protocol {

actor_settings::actor_settings(std::size_t threads) {
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", threads);
  set("logger.verbosity", caf::atom("quiet"));
}

}  // namespace penstock::protocol
