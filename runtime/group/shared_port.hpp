// Several groups of one process at one port. PENSTOCK_GROUP_ADDR names a single port, and a program may be rank 0 of several
// groups: of its own, of its sessions. The first coordinator_listener that gets the port accepts for all of them, and passes
// a connection on to the group that its first bytes ask for. When it stops, the next one takes the port.
#pragma once

#include "runtime/base/fd.hpp"

#include <functional>
#include <string>
#include <string_view>

namespace penstock::group {

/// Whether a connection that begins like this is a member of that group: it says so in its first message, or, encrypted, in the
/// identity of the pre-shared secret, which travels in the clear.
[[nodiscard]] bool asks_for(std::string_view first_bytes, std::string_view group);

/// A listener among those of this process. Any thread; `take` is called on the thread of the listener that accepted, and must not
/// block. Never after the destructor.
class shared_port {
 public:
  shared_port(std::string where, std::string group, std::function<void(unique_fd)> take);
  ~shared_port();
  shared_port(const shared_port&) = delete;
  shared_port& operator=(const shared_port&) = delete;

  /// This listener accepts now.
  void hold();
  /// Another listener of this process accepts at this address.
  [[nodiscard]] bool is_held_by_another() const;
  /// Passes the connection on if it asks for another group of this process; else it is returned, as is one that has said
  /// nothing yet.
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
