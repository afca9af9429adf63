#include "actors/remote/host_connect.hpp"

#include "runtime/net/sockets.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <string>

namespace penstock::hosts {

result<unique_fd> connect_to(const group::group_address& at, nanoseconds at_most, int wake) {
  auto addresses = group::resolve(at);
  if (!addresses) return tl::unexpected(std::move(addresses.error()));
  failure last{errc::io, "it has no address", 0};
  for (const group::socket_address& one : *addresses) {
    auto socket = group::begin_connect(one);
    if (!socket) {
      last = std::move(socket.error());
      continue;
    }
    std::array<pollfd, 2> look{pollfd{socket->get(), POLLOUT, 0}, {wake, POLLIN, 0}};
    ::poll(look.data(), look.size(), static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(at_most).count()));
    if (look[1].revents != 0) return refuse(errc::stopped, "it was interrupted");
    if (look[0].revents == 0) {
      last.message = "it did not answer";
      continue;
    }
    auto ok = group::finish_connect(socket->get());
    if (ok) return std::move(*socket);
    last = std::move(ok.error());
  }
  last.code = errc::io;
  return tl::unexpected(std::move(last));
}

result<unique_fd> listen_there(const group::group_address& at, std::chrono::seconds first_bytes_within) {
  auto socket = group::listen_at(at, first_bytes_within);
  const auto given = group::address_without_asking(at);
  if (!socket || !given || given->family() == AF_UNIX) return socket;
  group::socket_address bound;
  bound.size = sizeof bound.bytes;
  if (::getsockname(socket->get(), reinterpret_cast<::sockaddr*>(&bound.bytes), &bound.size) != 0) return socket;
  const auto means_all = [](const group::socket_address& one) {
    const std::string text = text_of(one);
    return text.starts_with("0.0.0.0:") || text.starts_with("[::]:");
  };
  if (means_all(bound) && !means_all(*given)) return refuse(errc::config, "listening at {}: no network interface of this machine has that address", text_of(at));
  return socket;
}

}  // namespace penstock::hosts
