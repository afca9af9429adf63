// The system calls for the links of a group: addresses, sockets that never block, and the identity of a peer. Used
// by both sides of a link.
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

/// The address of an abstract socket, or a numeric IP address. Empty if the name must be resolved.
[[nodiscard]] std::optional<socket_address> address_without_asking(const group_address& address);

/// Asks the system's resolver, which may take half a minute. Refuses (errc::io).
result<std::vector<socket_address>> resolve(const group_address& address);

/// A listening socket. For a numeric address of this host, listens on that address; for any other host name, on
/// all addresses of this host. If another user has taken an abstract name, appends random digits, so that no
/// process can guess the new name and take it first. `first_bytes_within`: connections that send nothing for
/// this long are not passed on (TCP). `ask_owner`: connects to a taken name to find out who owns it, which
/// the owner notices; otherwise the name counts as ours. Refuses (errc::io).
result<unique_fd> listen_at(const group_address& address, std::chrono::seconds first_bytes_within,
                            bool ask_owner = true);

/// The address of a listening socket, with its actual port or its actual abstract name.
[[nodiscard]] group_address listening_at(int socket, const group_address& address);

/// A connecting socket, writable once it is connected. Refuses (errc::io).
result<unique_fd> begin_connect(const socket_address& to);

/// The process at the other end of an abstract socket.
struct local_peer {
  ::pid_t pid = 0;
  ::uid_t user = 0;
  unique_fd process{};  ///< pidfd of the peer, if available; readable when the process has ended
};
[[nodiscard]] local_peer local_peer_of(int socket);

/// A connection to the process of this user that listens at an abstract name.
struct local_connection {
  unique_fd socket;
  socket_address at;
  local_peer peer;
};
/// Looks for the listener at this name. If another user has the name, also looks at names with random digits
/// appended. Does not block. Refuses (errc::io), naming that user.
result<local_connection> connect_locally(const group_address& address);

/// Completes a new connection. Refuses (errc::io) if it could not be made.
result<void> finish_connect(int socket);

/// For a connection that is about to be closed: discards unsent data, so that the system does not keep it.
void drop_what_is_left(int socket) noexcept;

/// The peer as text: "10.0.0.7:4711", or "pid 4711 of user 1000".
[[nodiscard]] std::string peer_name(int socket);

}  // namespace penstock::group
