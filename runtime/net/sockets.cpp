#include "runtime/net/sockets.hpp"

#include "runtime/base/unix_sockets.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <random>

namespace penstock::group {
namespace {

constexpr int newer_kernels_so_peerpidfd = 77;  // Linux 6.5; the C library's headers may not have it

template <class Address>
socket_address as_socket_address(const Address& from, std::size_t size = sizeof(Address)) {
  socket_address address;
  std::memcpy(&address.bytes, &from, size);
  address.size = static_cast<::socklen_t>(size);
  return address;
}

template <class Address>
Address as(const socket_address& from) {
  Address address{};
  std::memcpy(&address, &from.bytes, sizeof address);
  return address;
}

socket_address abstract(const std::string& name) {
  const abstract_address at(name);
  return as_socket_address(at.address(), at.size());
}

std::optional<socket_address> numeric(const std::string& host, std::uint16_t port) {
  ::sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) return as_socket_address(v4);
  ::sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) return as_socket_address(v6);
  return std::nullopt;
}

/// "NAME/0123456789abcdef", with NAME shortened to fit a socket's name.
constexpr std::size_t random_digits = 16;

std::string before_digits(const std::string& name) {
  constexpr std::size_t longest = sizeof(::sockaddr_un::sun_path) - 1 - 1 - random_digits;
  return name.substr(0, longest) + "/";
}

std::string with_random_digits(const std::string& name) {
  std::random_device source;
  return fmt::format("{}{:08x}{:08x}", before_digits(name), source(), source());
}

/// Abstract names of all users. Empty if the kernel does not list them.
std::vector<std::string> names_with_digits(const std::string& name) {
  std::vector<std::string> found;
  const std::string begin = before_digits(name);
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const std::size_t at = line.find(" @" + begin);
    if (at != std::string::npos && line.size() == at + 2 + begin.size() + random_digits)
      found.push_back(line.substr(at + 2));
  }
  std::ranges::sort(found);  // each connection also adds a line for its listener
  const auto repeats = std::ranges::unique(found);
  found.erase(repeats.begin(), repeats.end());
  return found;
}

/// Connects to the listener of that name. Refuses one of another user.
result<local_connection> connect_to(const std::string& name) {
  const socket_address at = abstract(name);
  auto socket = begin_connect(at);
  if (!socket) return tl::unexpected(std::move(socket.error()));
  local_peer peer = local_peer_of(socket->get());
  if (peer.user != ::geteuid())
    return refuse(errc::io, "the name {} was taken by user {}, but this process belongs to user {}",
                  text_of(at), peer.user, ::geteuid());
  return local_connection{std::move(*socket), at, std::move(peer)};
}

/// Also true if no process answers, because its user is then unknown.
bool is_taken_by_another(const group_address& address) {
  return address.what == group_address::kind::abstract_socket && !connect_to(address.name);
}

std::vector<socket_address> own_addresses(const group_address& address) {
  if (address.what == group_address::kind::abstract_socket) return {abstract(address.name)};
  if (address.name == "localhost") return {*numeric("127.0.0.1", address.port)};
  std::vector<socket_address> all;
  if (const auto given = numeric(address.name, address.port)) all.push_back(*given);
  // The name may resolve to an address of another host, such as that of a Kubernetes service,
  // so also try every address of this host. Without IPv6, only the last one works.
  all.push_back(*numeric("::", address.port));
  all.push_back(*numeric("0.0.0.0", address.port));
  return all;
}

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

std::string text_of(const socket_address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.family() == AF_INET) {
    const auto at = as<::sockaddr_in>(address);
    ::inet_ntop(AF_INET, &at.sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(at.sin_port));
  }
  if (address.family() == AF_INET6) {
    const auto at = as<::sockaddr_in6>(address);
    if (IN6_IS_ADDR_V4MAPPED(&at.sin6_addr)) {
      ::inet_ntop(AF_INET, at.sin6_addr.s6_addr + 12, text.data(), text.size());
      return fmt::format("{}:{}", text.data(), ntohs(at.sin6_port));
    }
    ::inet_ntop(AF_INET6, &at.sin6_addr, text.data(), text.size());
    return fmt::format("[{}]:{}", text.data(), ntohs(at.sin6_port));
  }
  const auto at = as<::sockaddr_un>(address);
  const std::size_t begin = offsetof(::sockaddr_un, sun_path) + 1;
  return address.size > begin ? "@" + std::string(at.sun_path + 1, address.size - begin) : "@";
}

std::optional<socket_address> address_without_asking(const group_address& address) {
  if (address.what == group_address::kind::abstract_socket) return abstract(address.name);
  return numeric(address.name, address.port);
}

result<std::vector<socket_address>> resolve(const group_address& address) {
  ::addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  ::addrinfo* found = nullptr;
  const int status =
      ::getaddrinfo(address.name.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  const std::string what = fmt::format("looking up the address of '{}'", address.name);
  if (status == EAI_SYSTEM) return refuse_os(errc::io, errno, what);
  if (status != 0) return refuse(errc::io, "{}: {}", what, ::gai_strerror(status));
  std::vector<socket_address> all;
  for (const ::addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_addrlen > sizeof(::sockaddr_storage)) continue;
    socket_address& next = all.emplace_back();
    std::memcpy(&next.bytes, one->ai_addr, one->ai_addrlen);
    next.size = one->ai_addrlen;
  }
  ::freeaddrinfo(found);
  return all;
}

result<local_connection> connect_locally(const group_address& address) {
  auto here = connect_to(address.name);
  if (here) return here;
  // Another user may hold any number of such names, so each attempt examines only
  // some of them, at random.
  constexpr std::size_t looked_at = 256;
  const std::vector<std::string> names = names_with_digits(address.name);
  const std::size_t first = names.empty() ? 0 : std::random_device{}() % names.size();
  for (std::size_t i = 0; i < std::min(names.size(), looked_at); ++i) {
    if (auto beside = connect_to(names[(first + i) % names.size()])) return beside;
  }
  return here;
}

result<unique_fd> listen_at(const group_address& address, std::chrono::seconds first_bytes_within,
                            bool ask_owner) {
  const std::string what = "listening at " + text_of(address);
  int first_error = 0;
  std::vector<socket_address> places = own_addresses(address);
  if (address.what == group_address::kind::abstract_socket)
    places.push_back(abstract(with_random_digits(address.name)));
  for (const socket_address& at : places) {
    unique_fd made(::socket(at.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int error = made ? 0 : errno;
    if (made && at.family() != AF_UNIX) {
      set(made.get(), SOL_SOCKET, SO_REUSEADDR, 1);
      set(made.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, static_cast<int>(first_bytes_within.count()));
      if (at.family() == AF_INET6) set(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    }
    if (made && (::bind(made.get(), reinterpret_cast<const ::sockaddr*>(&at.bytes), at.size) != 0 ||
                 ::listen(made.get(), SOMAXCONN) != 0))
      error = errno;
    if (error == 0) return made;
    if (first_error == 0) first_error = error;
    if (error == EADDRINUSE && ask_owner && is_taken_by_another(address)) continue;
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) return refuse_os(errc::io, error, what);
  }
  return refuse_os(errc::io, first_error, what);
}

group_address listening_at(int socket, const group_address& address) {
  group_address where = address;
  socket_address at;
  at.size = sizeof at.bytes;
  if (::getsockname(socket, reinterpret_cast<::sockaddr*>(&at.bytes), &at.size) != 0) return where;
  if (at.family() == AF_UNIX) {
    where.name = text_of(at).substr(1);
    return where;
  }
  where.port =
      ntohs(at.family() == AF_INET6 ? as<::sockaddr_in6>(at).sin6_port : as<::sockaddr_in>(at).sin_port);
  return where;
}

result<unique_fd> begin_connect(const socket_address& to) {
  const std::string what = "connecting to " + text_of(to);
  unique_fd made(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) return refuse_os(errc::io, errno, what);
  if (to.family() != AF_UNIX) set(made.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (::connect(made.get(), reinterpret_cast<const ::sockaddr*>(&to.bytes), to.size) == 0 ||
      errno == EINPROGRESS)
    return made;
  return refuse_os(errc::io, errno, what);
}

result<void> finish_connect(int socket) {
  int error = 0;
  ::socklen_t size = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return refuse_os(errc::io, error, "connecting");
  return {};
}

void drop_what_is_left(int socket) noexcept {
  const ::linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

local_peer local_peer_of(int socket) {
  local_peer peer;
  ::ucred who{};
  ::socklen_t size = sizeof who;
  peer.user = static_cast<::uid_t>(-1);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return peer;
  peer.pid = who.pid;
  peer.user = who.uid;
  int pidfd = -1;
  size = sizeof pidfd;
  if (::getsockopt(socket, SOL_SOCKET, newer_kernels_so_peerpidfd, &pidfd, &size) != 0 && who.pid > 0)
    pidfd = static_cast<int>(::syscall(SYS_pidfd_open, who.pid, 0));
  peer.process.reset(pidfd);
  return peer;
}

std::string peer_name(int socket) {
  socket_address at;
  at.size = sizeof at.bytes;
  if (::getpeername(socket, reinterpret_cast<::sockaddr*>(&at.bytes), &at.size) != 0) return "unknown";
  if (at.family() != AF_UNIX) return text_of(at);
  const local_peer peer = local_peer_of(socket);
  return fmt::format("pid {} of user {}", peer.pid, peer.user);
}

}  // namespace penstock::group
