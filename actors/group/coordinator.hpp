// The coordinator of a group, in rank 0's session: collects the reports of all ranks and sends them their orders. It
// translates; runtime/group/coordinator_driver decides.
//
//   receives  reports_arrived, member_closed, member_process_ended, member_held, address_taken, address_refused,
//             unknown_peer_came, links_refused                    from its listener
//             leave_group, drop_group                         from the session
//   sends     group_order                                     over the links
//             through group_listener                              rank_arrived, rank_lost, cannot_listen, peer_refused,
//                                                           coordinator_gone
//   owns      the coordinator_driver
//
// It runs until the group is over and every rank knows that, or until drop_group.
#pragma once

#include "actors/group/wires.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "runtime/group/group_book.hpp"

#include <functional>
#include <memory>
#include <string>

namespace penstock::actors {
class actor_system;
}

namespace penstock::group {

struct coordinator_deps {
  group_settings settings;
  std::string group;  ///< the group's name, for messages
  /// Opens the actor's listener. Called once.
  std::function<std::shared_ptr<coordinator_wire>(coordinator_actor, std::shared_ptr<newest_reports>)> listen;
  group_listener* listener = nullptr;  ///< outlives the actor
  /// Null: no launcher reports how processes end. After a put(), send reports_arrived.
  std::shared_ptr<told_ends> ends{};
};

coordinator_actor spawn_coordinator(actors::actor_system& system, coordinator_deps deps);

}  // namespace penstock::group
