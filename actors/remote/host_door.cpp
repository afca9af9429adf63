#include "actors/remote/host_door.hpp"

#include "actors/remote/host_connect.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/net/sockets.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr auto call_bytes_within = 5s;
constexpr int no_descriptor_pause_ms = 100;

}  // namespace

host_door::host_door(unique_fd socket, std::string where)
    : socket_(std::move(socket)), where_(std::move(where)) {}

result<std::unique_ptr<host_door>> host_door::listen(const group::group_address& address) {
  auto socket = listen_there(address, call_bytes_within);
  if (!socket) return tl::unexpected(std::move(socket.error()));
  std::string where = text_of(group::listening_at(socket->get(), address));
  auto made = std::unique_ptr<host_door>(new host_door(std::move(*socket), std::move(where)));
  if (made->wake_.fd() < 0) return refuse_os(errc::io, errno, "making an eventfd");  // without it, close() could not end the thread
  return made;
}

void host_door::open(std::function<void(accepted_call)> take) {
  const all_signals_blocked quiet;
  thread_ = std::thread([this, take = std::move(take)] {
    ::pthread_setname_np(::pthread_self(), "penstock-door");
    run(take);
  });
}

void host_door::run(const std::function<void(accepted_call)>& take) const {
  std::array<pollfd, 2> look{pollfd{wake_.fd(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
  while (true) {
    ::poll(look.data(), look.size(), -1);
    if (look[0].revents != 0) return;
    unique_fd made(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (made) {
      std::string from = group::peer_name(made.get());
      take({std::move(made), std::move(from)});
    } else {
      // Perhaps no descriptor is free: let the connection wait.
      ::poll(look.data(), 1, no_descriptor_pause_ms);
    }
  }
}

void host_door::close() {
  wake_.raise();
  if (thread_.joinable()) thread_.join();
}

}  // namespace penstock::hosts
