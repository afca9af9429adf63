#include "actors/job_worker/session_channel.hpp"

#include "actors/child/high_descriptor.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace penstock::job_worker {
namespace {

constexpr std::size_t incoming_bytes = 64 * 1024;

}  // namespace

session_channel::session_channel(int link) : incoming_(incoming_bytes) {
  socket_ = child::high_duplicate(link);
}

bool session_channel::send(const protocol::from_worker& message) {
  outgoing_.clear();
  if (!protocol::append_frame(outgoing_, message)) return false;
  std::span<const char> rest = outgoing_;
  while (!rest.empty()) {
    const ssize_t bytes = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return false;
    rest = rest.subspan(static_cast<std::size_t>(bytes));
  }
  return true;
}

session_channel::news session_channel::receive(wait how,
                                               const std::function<void(protocol::to_worker&&)>& take) {
  news found = news::none;
  while (found != news::received || reader_.in_the_middle()) {
    const bool waits = how == wait::for_one && found == news::none;
    const ssize_t bytes = ::recv(socket_.get(), incoming_.data(), incoming_.size(), waits ? 0 : MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (bytes <= 0) return news::closed;
    const auto ok =
        reader_.feed({incoming_.data(), static_cast<std::size_t>(bytes)}, [&](protocol::to_worker&& message) {
          found = news::received;
          take(std::move(message));
        });
    if (ok) continue;
    nonsense_ = ok.error().message;
    return news::nonsense;
  }
  return found;
}

}  // namespace penstock::job_worker
