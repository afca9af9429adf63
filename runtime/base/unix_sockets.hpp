// Helpers for UNIX sockets: abstract names, which are not in the file system and
// which the kernel frees when their process ends, and descriptors in a message.
#pragma once

#include "runtime/base/fd.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace penstock {

/// An abstract name as an address. Longer names are cut to 107 bytes.
class abstract_address {
 public:
  explicit abstract_address(std::string_view name) {
    address_.sun_family = AF_UNIX;
    const std::size_t length = std::min(name.size(), sizeof address_.sun_path - 1);
    std::memcpy(address_.sun_path + 1, name.data(), length);  // a leading zero byte makes the name abstract
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }

  [[nodiscard]] const sockaddr_un& address() const noexcept { return address_; }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address_); }
  [[nodiscard]] socklen_t size() const noexcept { return size_; }

 private:
  sockaddr_un address_{};
  socklen_t size_ = 0;
};

/// Puts descriptors into a message whose msg_control has room for them: CMSG_SPACE(their bytes). Without descriptors,
/// there is no control data.
inline void pass_descriptors(msghdr& message, std::span<const int> descriptors) {
  message.msg_controllen = descriptors.empty() ? 0 : CMSG_SPACE(descriptors.size_bytes());
  if (descriptors.empty()) return;
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
}

/// Takes ownership of every descriptor in a received message, so that a refusal leaves none open.
inline std::vector<unique_fd> take_descriptors(msghdr& message) {
  std::vector<unique_fd> taken;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at < part->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(part) + at, sizeof fd);
      taken.emplace_back(fd);
    }
  }
  return taken;
}

}  // namespace penstock
