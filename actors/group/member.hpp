// The member actor: what one rank of a group receives, sends and owns. It translates;
// runtime/group/rank_driver decides.
//
//   receives  join_group, stream_described, stream_delivered, session_failed, stop_group, leave_group  from the session
//             limit_reached                                   from the code that hands out batches
//             cannot_listen, peer_refused                     from rank 0's coordinator
//             orders_arrived, link_made, link_lost, coordinator_ended, coordinator_held, links_refused   from its link
//   sends     member_report                                   over the link
//             through group_listener                              joined, gate_moved, group_over, ...
//   owns      the rank_driver; it alone writes the hand_over_gate
//
// A rank starts to report at join_group, that is, once its device is open; before that, it only reports that
// it fails or leaves. At the end it stays until the other ranks know what they need (rule G22), or until
// drop_group.
#pragma once

#include "actors/group/wires.hpp"
#include "actors/protocol/local/hand_over_gate.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "runtime/group/member_book.hpp"

#include <functional>
#include <memory>
#include <string>

namespace penstock::actors {
class actor_system;
}

namespace penstock::group {

struct member_deps {
  member_settings settings;  ///< its card does not name the device yet
  std::string group;         ///< the group's name, for messages
  std::string where;         ///< the group's address, for messages
  std::shared_ptr<hand_over_gate> gate;
  /// Opens the actor's link. Called once.
  std::function<std::shared_ptr<member_wire>(member_actor, std::shared_ptr<newest_order>)> connect;
  group_listener* listener = nullptr;  ///< outlives the actor
};

member_actor spawn_member(actors::actor_system& system, member_deps deps);

}  // namespace penstock::group
