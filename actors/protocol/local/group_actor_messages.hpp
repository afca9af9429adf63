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
  std::string device;  ///< UUID of its GPU; empty: the host device
};
/// The dataset is known, and where the stream begins.
struct stream_described {
  stream_facts facts;
  std::uint64_t first = 0;  ///< steps that earlier processes of this rank have delivered
};
/// Every batch of the stream has been handed out.
struct stream_delivered {};
/// The session cannot go on.
struct session_failed {
  std::string why;
};
/// A signal, or an operator: stop at a common step.
struct stop_group {};
/// A stopping group's last step was handed out.
struct limit_reached {};
/// From the GPU owner.
struct communicator_told {
  communicator_state state;
};
/// The steps at which the owner's program has a snapshot that is not agreed yet, ascending.
struct snapshots_held {
  std::vector<std::uint64_t> steps;
};
/// Orders are in the mailbox that the link writes (newest).
struct orders_arrived {};
struct link_made {};
struct link_lost {
  std::string why;
  bool closed = false;  ///< by the other side
};
/// The coordinator's process, on this host, has ended for certain.
struct coordinator_ended {};
/// A debugger holds the coordinator's process, on this host.
struct coordinator_held {};
/// Rank 0's coordinator, in the same session, cannot take the group's address; empty: it has it.
struct cannot_listen {
  std::string why;
};

// ---- to the coordinator

struct reports_arrived {};
/// Links have numbers; those of one listener are never used again.
struct member_closed {
  std::uint64_t link = 0;
};
/// The process at the other end, on this host, has ended for certain.
struct member_process_ended {
  std::uint64_t link = 0;
};
/// A debugger holds the process at the other end, on this host.
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
  std::string who;  ///< and why it was refused
};

/// From rank 0's GPU owner: the id of a new communicator.
struct communicator_drawn {
  std::uint64_t number = 0;
  std::string id;
};

// ---- to both

/// The links cannot be made as they are configured.
struct links_refused {
  failure why;
};
/// The session closes. What the others have to know is still said.
struct leave_group {};
/// End now.
struct drop_group {};
struct group_beat {
  bool again = true;  ///< another one follows
};

}  // namespace penstock::group
