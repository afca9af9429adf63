// The system calls of the links of a group: addresses, sockets that never block, who a peer is. Used by group_link.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/group/group_address.hpp"

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace penstock::group {

struct socket_address {
  ::sockaddr_storage bytes{};
  ::socklen_t size = 0;
  [[nodiscard]] int family() const noexcept { return bytes.ss_family; }
};

/// "10.0.0.7:4711", "[fe80::1]:4711", "@name".
[[nodiscard]] std::string text_of(const socket_address& address);

/// An abstract socket's, or a numeric IP address; none: the name has to be resolved.
[[nodiscard]] std::optional<socket_address> address_without_asking(const group_address& address);

/// Asks the system's resolver: may take half a minute. Refuses (errc::io).
result<std::vector<socket_address>> resolve(const group_address& address);

/// A socket that listens. A numeric address is taken as it is, if this host has it; any other host's name stands for all
/// addresses of this host. An abstract name that another user has taken gets random digits behind it, which nobody can
/// take before us. `first_bytes_within`: connections that send nothing for so long are not passed on (TCP).
/// `ask_owner`: of a taken name, by a connection that its owner sees; otherwise it counts as ours. Refuses (errc::io).
result<unique_fd> listen_at(const group_address& address, std::chrono::seconds first_bytes_within,
                            bool ask_owner = true);

/// Where a listening socket listens: the address with its actual port, or its actual abstract name.
[[nodiscard]] group_address listening_at(int socket, const group_address& address);

/// A socket that connects: writable when it does. Refuses (errc::io).
result<unique_fd> begin_connect(const socket_address& to);

/// The process at the other end of an abstract socket.
struct local_peer {
  ::pid_t pid = 0;
  ::uid_t user = 0;
  unique_fd process{};  ///< its pidfd, if it can be had: readable when it has ended
};
[[nodiscard]] local_peer local_peer_of(int socket);

/// A connection to the process of this user that listens at an abstract name.
struct local_connection {
  unique_fd socket;
  socket_address at;
  local_peer peer;
};
/// Looks for it at the name, and at those with random digits behind it, if another user has the name. Does not block.
/// Refuses (errc::io), naming that user.
result<local_connection> connect_locally(const group_address& address);

/// Nothing is left to do for a new connection but this. Refuses (errc::io) if it could not be made.
result<void> finish_connect(int socket);

/// For a connection that is closed next: drops what is on its way, so that the system keeps nothing of it.
void drop_what_is_left(int socket) noexcept;

/// For people: "10.0.0.7:4711", or "pid 4711 of user 1000".
[[nodiscard]] std::string peer_name(int socket);

}  // namespace penstock::group
