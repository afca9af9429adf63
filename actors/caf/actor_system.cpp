#include "actors/caf/shared_actor.hpp"

#if !PENSTOCK_CAF_1
#include <caf/atom.hpp>
#endif

#include <optional>

namespace penstock::actors {

namespace {

struct with_settings {
  explicit with_settings(std::size_t threads) {
#if PENSTOCK_CAF_1
    settings.set("caf.scheduler.policy", "sharing");
    settings.set("caf.scheduler.max-threads", threads);
    settings.set("caf.logger.file.verbosity", "quiet");
    settings.set("caf.logger.console.verbosity", "quiet");
#else
    settings.set("scheduler.policy", caf::atom("sharing"));
    settings.set("scheduler.max-threads", threads);
    settings.set("logger.verbosity", caf::atom("quiet"));
#endif
    system.emplace(settings);
  }

  caf::actor_system_config settings;
  std::optional<caf::actor_system> system;
};

}  // namespace

std::shared_ptr<caf::actor_system> actor_system::made(std::size_t threads, messages_registered) {
#if PENSTOCK_CAF_1
  detail::register_messages<2>();  // the messages of shared actors
#endif
  const auto both = std::make_shared<with_settings>(threads);
  return {both, &*both->system};
}

}  // namespace penstock::actors
