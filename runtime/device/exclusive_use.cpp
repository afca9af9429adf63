#include "runtime/device/exclusive_use.hpp"

#include "runtime/base/unix_sockets.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <optional>

namespace penstock::device {
namespace {

/// The pid of the process that listens on that name. Empty if the process has ended or we have no access to
/// it.
std::optional<pid_t> holder_of(const abstract_address& name) {
  const unique_fd asking(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!asking || ::connect(asking.get(), name.get(), name.size()) != 0)
    return std::nullopt;
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(asking.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return std::nullopt;
  return peer.pid;
}

/// The sessions of this process that hold a GPU, by the GPU's uuid.
struct holders {
  std::mutex mutex;
  std::map<std::string, std::string> sessions;

  static holders& here() {
    static auto* all = new holders;  // never destroyed, because a session may outlive main()
    return *all;
  }
};

failure in_use(const std::string& uuid, const abstract_address& name) {
  const auto pid = holder_of(name);
  if (pid == ::getpid()) {
    holders& all = holders::here();
    const std::lock_guard hold(all.mutex);
    if (const auto found = all.sessions.find(uuid); found != all.sessions.end()) {
      return {errc::device_busy,
              fmt::format("the GPU {} is in use by '{}', an earlier session or pool of this process (pid "
                          "{}): close that session or pool first, choose another GPU with [gpu] device, or "
                          "set [gpu] share = true in both",
                          uuid, found->second, *pid),
              0};
    }
  }
  return {errc::device_busy,
          fmt::format("the GPU {} is in use by another penstock session{}: end that session, choose another "
                      "GPU with [gpu] device, or set [gpu] share = true in both",
                      uuid, pid ? fmt::format(" (pid {})", *pid) : ""),
          0};
}

}  // namespace

exclusive_use::~exclusive_use() {
  if (!name_) return;
  holders& all = holders::here();
  const std::lock_guard hold(all.mutex);
  all.sessions.erase(uuid_);
}

result<exclusive_use> exclusive_use::take(const std::string& uuid, const std::string& session) {
  const abstract_address name("penstock/gpu/" + uuid);
  unique_fd own(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!own) return refuse_os(errc::system, errno, "creating the lock of a GPU (a socket)");
  if (::bind(own.get(), name.get(), name.size()) != 0) {
    if (errno != EADDRINUSE) return refuse_os(errc::system, errno, fmt::format("locking the GPU {}", uuid));
    return tl::unexpected(in_use(uuid, name));
  }
  // Listening makes the kernel report our pid to processes that connect; no connection is ever accepted.
  if (::listen(own.get(), SOMAXCONN) != 0)
    return refuse_os(errc::system, errno, fmt::format("locking the GPU {}", uuid));
  holders& all = holders::here();
  const std::lock_guard hold(all.mutex);
  all.sessions[uuid] = session;
  return exclusive_use(std::move(own), uuid);
}

}  // namespace penstock::device
