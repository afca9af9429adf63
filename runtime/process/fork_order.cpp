#include "runtime/process/fork_order.hpp"

#include "runtime/base/unix_sockets.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace penstock::process {
namespace {

/// One message: a struct and descriptors.
struct packet {
  iovec piece{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(fork_descriptors_max * sizeof(int))> control{};
  msghdr message{};

  packet(void* content, std::size_t bytes) : piece{content, bytes} {
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }

  /// Returns false if the socket is full, which can happen with MSG_DONTWAIT only.
  result<bool> send(int socket, const std::vector<int>& descriptors, int flags) {
    pass_descriptors(message, descriptors);
    while (::sendmsg(socket, &message, flags | MSG_NOSIGNAL) < 0) {
      if (errno == EAGAIN || errno == ETOOMANYREFS) return false;
      if (errno != EINTR) return refuse_os(errc::system, errno, "sending a message about a fork");
    }
    return true;
  }

  /// -1: see errno.
  ssize_t receive(int socket, int flags, std::vector<unique_fd>& descriptors) {
    const ssize_t bytes = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    if (bytes >= 0) descriptors = take_descriptors(message);
    return bytes;
  }
};

}  // namespace

result<std::pair<unique_fd, unique_fd>> make_fork_sockets() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return refuse_os(errc::system, errno, "creating the socket pair of a template");
  return std::pair(unique_fd(ends[0]), unique_fd(ends[1]));
}

result<bool> send_order(int socket, const fork_order& order, const std::vector<unique_fd>& descriptors) {
  std::vector<int> numbers;
  for (const unique_fd& fd : descriptors) numbers.push_back(fd.get());
  fork_order content = order;
  return packet(&content, sizeof content).send(socket, numbers, MSG_DONTWAIT);
}

bool send_answer(int socket, const fork_answer& answer, int pidfd) {
  fork_answer content = answer;
  const auto sent = packet(&content, sizeof content)
                        .send(socket, pidfd < 0 ? std::vector<int>() : std::vector<int>{pidfd}, 0);
  return sent && *sent;
}

result<std::optional<received_order>> receive_order(int socket) {
  received_order got;
  while (true) {
    const ssize_t bytes = packet(&got.order, sizeof got.order).receive(socket, 0, got.descriptors);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes == 0 || (bytes < 0 && errno == ECONNRESET)) return std::nullopt;
    if (bytes < 0) return refuse_os(errc::system, errno, "waiting for an order to fork");
    if (bytes != sizeof got.order || got.order.count > fork_descriptors_max ||
        got.descriptors.size() != got.order.count)
      return refuse(errc::protocol, "an order to fork has {} bytes and {} descriptors", bytes,
                    got.descriptors.size());
    return got;
  }
}

result<std::optional<received_answer>> receive_answer(int socket) {
  received_answer got;
  std::vector<unique_fd> descriptors;
  ssize_t bytes = -1;
  do {
    bytes = packet(&got.answer, sizeof got.answer).receive(socket, MSG_DONTWAIT, descriptors);
  } while (bytes < 0 && errno == EINTR);
  if (bytes == 0 || (bytes < 0 && (errno == EAGAIN || errno == ECONNRESET))) return std::nullopt;
  if (bytes < 0) return refuse_os(errc::system, errno, "receiving an answer from a template");
  const bool forked = got.answer.what == fork_answer::kind::forked;
  if (bytes != sizeof got.answer || descriptors.size() != (forked ? 1U : 0U) ||
      (forked && got.answer.pid <= 0))
    return refuse(errc::protocol, "a template answered with {} bytes and {} descriptors", bytes,
                  descriptors.size());
  got.answer.why.back() = '\0';
  if (forked) got.pidfd = std::move(descriptors.front());
  return got;
}

}  // namespace penstock::process
