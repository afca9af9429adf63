// The folder of control sockets, and claiming and releasing a name in it. One folder per user, inaccessible
// to other users.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace penstock::control {

/// $XDG_RUNTIME_DIR/penstock, else /tmp/penstock-UID.
[[nodiscard]] std::filesystem::path socket_folder();

/// Like socket_folder(), but creates the folder if it is missing. Refuses a folder that belongs to another
/// user, that others may enter, or that is a link: another user
/// could then intercept the connection between session and CLI.
result<std::filesystem::path> make_socket_folder();

/// The rank and the launch of a session, stored next to the socket in NAME.rank. The note tells sessions of
/// different launches of the same file apart, even if they do not answer.
struct rank_note {
  std::string job;    ///< the launcher's name for this launch; empty: launches cannot be told apart
  std::string group;  ///< the session's name without the rank
  std::uint32_t rank = 0;
  bool operator==(const rank_note&) const = default;
};

struct bound_socket {
  unique_fd listener;  ///< listening, non-blocking, close-on-exec
  std::filesystem::path path;
  bool renamed = false;  ///< a live session has the name, so this session is NAME-PID, or NAME-PID-2 and so on
};

/// How long to wait while another process locks the folder. It holds the lock only for a bind or an unlink,
/// unless it is stopped meanwhile.
inline constexpr std::chrono::milliseconds folder_lock_deadline{200};

/// Listens as NAME.sock, and stores the rank, if the session has one, in NAME.rank. Replaces a socket without
/// a listener, but never a live one, whether it belongs to another process or to this one. Waits at most
/// `folder_lock_deadline`, then refuses with errc::timed_out.
result<bound_socket> bind_session_socket(const std::string& name, int pid,
                                         const std::optional<rank_note>& rank = std::nullopt);
/// Removes the socket and its note.
void remove_session_socket(const std::filesystem::path& socket) noexcept;

struct found_session {
  std::string name;
  std::filesystem::path path;
  bool alive = false;
  std::optional<rank_note> rank{};
};

/// All sockets in the folder, sorted by name.
[[nodiscard]] std::vector<found_session> find_sessions();

/// Removes sockets without a listener, and returns how many. Does nothing if the folder stays locked until
/// the deadline.
std::size_t remove_dead_sockets();

/// A non-blocking stream socket that is connected to a control socket. Never waits: refuses with errc::io if
/// there is no listener, with errc::timed_out when the listener's backlog is full.
result<unique_fd> connect_to(const std::filesystem::path& socket);
/// The process that listens there; 0: none, or one in another pid namespace.
pid_t process_behind(const std::filesystem::path& socket);

}  // namespace penstock::control
