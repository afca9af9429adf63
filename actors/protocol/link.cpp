#include "actors/protocol/link.hpp"

#include <cerrno>

namespace penstock::protocol {

result<std::pair<unique_fd, unique_fd>> make_link_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return refuse_os(errc::system, errno, "creating the socket pair to a child process");
  }
  return std::pair(unique_fd(ends[0]), unique_fd(ends[1]));
}

}  // namespace penstock::protocol
