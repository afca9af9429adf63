#include "actors/protocol/parcels.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/base/unix_sockets.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace penstock::protocol {
namespace {

/// Sent together with the file's descriptor: the parcel_label after a magic number.
struct packet {
  static constexpr std::uint32_t expected_magic = 0x4c435250;  // "PRCL"
  std::uint32_t magic = expected_magic;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t row = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(packet) == 24);

// Room for more than the one allowed descriptor: the kernel drops descriptors that do not fit, and reports
// only that something was truncated.
constexpr std::size_t descriptors_seen = 4;

/// A wait in short turns; the caller tries again after each turn.
class turns {
 public:
  turns(nanoseconds patience, parcel_clock time)
      : time_(time),
        turn_(look_interval(patience, std::chrono::milliseconds(250))),
        until_(patience, turn_),
        over_(patience <= nanoseconds(0)) {
    if (!over_) until_.restart(time_());
  }
  /// Call when an attempt has failed. Waits until the socket is readable or writable, for one turn at most. False if the time is
  /// over.
  bool wait(int socket, short event) { return wait(socket, event, turn_); }
  bool wait(int socket, short event, nanoseconds turn) {
    if (over_ || until_.is_over(time_())) return false;
    pollfd news{socket, event, 0};
    ::poll(&news, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(turn).count()));
    return true;
  }

 private:
  parcel_clock time_;
  nanoseconds turn_;
  patient_deadline until_;
  bool over_;
};

result<parcel> checked(const packet& from, unique_fd file) {
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return refuse_os(errc::protocol, errno, "examining a parcel");
  if (!is_sealed(file.get(), seal::size_and_contents)) {
    return refuse(errc::protocol,
                  "the parcel of slot {}, row {}, is not a sealed memory file: it could still change",
                  from.slot, from.row);
  }
  if (from.bytes == 0 || static_cast<std::uint64_t>(facts.st_size) != from.bytes) {
    return refuse(errc::protocol, "the parcel of slot {}, row {}, announces {} bytes, but has {}", from.slot,
                  from.row, from.bytes, facts.st_size);
  }
  return parcel{{from.slot, from.generation, from.row, from.bytes}, std::move(file)};
}

}  // namespace

result<std::pair<unique_fd, unique_fd>> make_parcel_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return refuse_os(errc::system, errno, "creating the socket pair for large arguments and results");
  return std::pair(unique_fd(ends[0]), unique_fd(ends[1]));
}

result<bool> send_parcel(int socket, const parcel_label& label, int file, nanoseconds patience, parcel_clock time) {
  PENSTOCK_CHECK(label.bytes > 0, "the parcel for slot {}, row {}, is empty", label.slot, label.row);
  turns until(patience, time);
  packet content{packet::expected_magic, label.slot, label.generation, label.row, label.bytes};
  iovec piece{&content, sizeof content};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  pass_descriptors(message, {&file, 1});
  while (true) {
    if (::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno == EINTR) continue;
    // Too many descriptors in flight count as a full socket: the receiver will free some.
    if (errno != EAGAIN && errno != ETOOMANYREFS)
      return refuse_os(errc::system, errno, fmt::format("sending {} bytes in a memory file", label.bytes));
    // After ETOOMANYREFS, try again after a pause: nothing reports that the receiver has taken descriptors.
    constexpr std::chrono::milliseconds look_again{1};
    if (!(errno == EAGAIN ? until.wait(socket, POLLOUT) : until.wait(-1, 0, look_again))) return false;
  }
}

result<std::optional<parcel>> receive_parcel(int socket, nanoseconds patience, parcel_clock time) {
  turns until(patience, time);
  packet content;
  iovec piece{&content, sizeof content};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(descriptors_seen * sizeof(int))> control{};
  msghdr message{};
  ssize_t bytes = -1;
  while (true) {
    message = {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    bytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes >= 0) break;
    if (errno == EINTR) continue;
    // The peer closed its end without reading everything. The kernel reports that once, and then delivers the
    // parcels that the peer had sent, followed by end of file.
    if (errno == ECONNRESET) continue;
    if (errno != EAGAIN) return refuse_os(errc::system, errno, "receiving a memory file");
    if (!until.wait(socket, POLLIN)) return std::nullopt;
  }
  std::vector<unique_fd> files = take_descriptors(message);
  // Our packets are never empty, so treat an empty one as the end of the file.
  if (bytes == 0 && files.empty())
    return refuse(errc::stopped, "the other end of the parcel socket is closed");
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return refuse(errc::protocol, "a parcel is longer than the protocol allows");
  if (static_cast<std::size_t>(bytes) != sizeof content || content.magic != packet::expected_magic)
    return refuse(errc::protocol, "received {} bytes that are not a parcel on the parcel socket", bytes);
  if (files.size() != 1) return refuse(errc::protocol, "a parcel arrived with {} descriptors instead of one", files.size());
  auto taken = checked(content, std::move(files.front()));
  if (!taken) return tl::unexpected(std::move(taken.error()));
  return std::optional<parcel>(std::move(*taken));
}

}  // namespace penstock::protocol
