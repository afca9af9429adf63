// Lets several groups of one process share a port. PENSTOCK_GROUP_ADDR names a single port, and a program may be
// rank 0 of several groups: its own and those of its sessions. The first coordinator_listener that gets the
// port accepts for all of them, and passes a connection on to the group named in its first bytes. When it
// stops, the next one takes the port.
#pragma once

#include "runtime/base/fd.hpp"

#include <functional>
#include <string>
#include <string_view>

namespace penstock::group {

/// Whether a connection that starts with these bytes asks for that group. The first message names the group,
/// or, if the connection is encrypted, the identity of the pre-shared secret, which is sent in the clear.
[[nodiscard]] bool asks_for(std::string_view first_bytes, std::string_view group);

/// One listener of this process. Usable from any thread. `take` is called on the thread
/// of the listener that accepted, and must not block. No call follows the destructor.
class shared_port {
 public:
  shared_port(std::string where, std::string group, std::function<void(unique_fd)> take);
  ~shared_port();
  shared_port(const shared_port&) = delete;
  shared_port& operator=(const shared_port&) = delete;

  /// This listener accepts connections from now on.
  void hold();
  /// Whether another listener of this process accepts at this address.
  [[nodiscard]] bool is_held_by_another() const;
  /// Passes the connection on if it asks for another group of this process. Otherwise returns the connection,
  /// even if it has sent nothing yet.
  [[nodiscard]] unique_fd route(unique_fd socket) const;

 private:
  struct entry {
    std::string where;
    std::string group;
    std::function<void(unique_fd)> take;
    bool holds = false;
  };
  struct all_entries;
  static all_entries& all();
  entry own_;
};

}  // namespace penstock::group
