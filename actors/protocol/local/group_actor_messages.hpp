// Messages to the two actors of a group: the member, which each rank has, and the coordinator, which rank 0 has.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/group/group_messages.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::group {

// ---- to the member

/// The device is open: join.
struct join_group {
  std::string device;  ///< UUID of the rank's GPU; empty: the host device
};
/// The dataset is known, as is the beginning of the stream.
struct stream_described {
  stream_facts facts;
  std::uint64_t first = 0;  ///< steps that earlier processes of this rank have delivered
};
/// Every batch of the stream has been handed out.
struct stream_delivered {};
/// The session cannot continue.
struct session_failed {
  std::string why;
};
/// Sent for a signal or an operator's order: stop at a common step.
struct stop_group {};
/// The last step of a stopping group has been handed out.
struct limit_reached {};
/// From the GPU owner: the state of its communicator.
struct communicator_told {
  communicator_state state;
};
/// The steps for which the owner's program has a snapshot that is not agreed yet, ascending.
struct snapshots_held {
  std::vector<std::uint64_t> steps;
};
/// The mailbox that the link writes (newest) contains orders.
struct orders_arrived {};
struct link_made {};
struct link_lost {
  std::string why;
  bool closed = false;  ///< the peer closed the link
};
/// The coordinator's process, on this host, is known to have exited.
struct coordinator_ended {};
/// A debugger has stopped the coordinator's process, which is on this host.
struct coordinator_held {};
/// Rank 0's coordinator, in the same session, cannot listen at the group's address; empty: it listens.
struct cannot_listen {
  std::string why;
};
/// Rank 0's coordinator has refused a peer, perhaps a rank that is missing.
struct peer_refused {
  std::string who;
};

// ---- to the coordinator

struct reports_arrived {};
/// Links have numbers, which a listener never reuses.
struct member_closed {
  std::uint64_t link = 0;
};
/// The peer's process, on this host, is known to have exited.
struct member_process_ended {
  std::uint64_t link = 0;
};
/// A debugger has stopped the peer's process, which is on this host.
struct member_held {
  std::uint64_t link = 0;
};
struct address_taken {
  std::string where;
};
struct address_refused {
  std::string why;
};
struct unknown_peer_came {
  std::string who;  ///< the peer, and why it was refused
};

/// From rank 0's GPU owner: the id of a new communicator.
struct communicator_drawn {
  std::uint64_t number = 0;
  std::string id;
};

// ---- to both

/// The links cannot be made with this configuration.
struct links_refused {
  failure why;
};
/// The session is closing: end once the other ranks know what they need.
struct leave_group {};
/// End now.
struct drop_group {};
struct group_beat {
  bool again = true;  ///< schedule the next beat
};

}  // namespace penstock::group
