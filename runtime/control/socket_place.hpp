// The folder of control sockets, and claiming and releasing a name in it. One folder per user, accessible to
// nobody else.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace penstock::control {

/// $XDG_RUNTIME_DIR/penstock, else /tmp/penstock-UID.
[[nodiscard]] std::filesystem::path socket_folder();

/// The same, created if it is missing. Refuses a folder that belongs to another user, that others may enter,
/// or that is a link: its owner could intercept the connection between session and CLI.
result<std::filesystem::path> make_socket_folder();

/// Which rank of which launch a session is. It lies beside the socket, in NAME.rank: also a session that does not answer
/// has to be told from one of another launch of the same file.
struct rank_note {
  std::string job;    ///< what its launcher calls this launch; empty: nothing tells two apart
  std::string group;  ///< the session's name without the rank
  std::uint32_t rank = 0;
  bool operator==(const rank_note&) const = default;
};

struct bound_socket {
  unique_fd listener;  ///< listening, non-blocking, close-on-exec
  std::filesystem::path path;
  bool renamed = false;  ///< a live session has the name; this one is NAME-PID, or NAME-PID-2 and so on
};

/// How long to wait while others lock the folder. They need it only for a bind or an unlink; longer only if
/// one of them was stopped meanwhile.
inline constexpr std::chrono::milliseconds folder_lock_deadline{200};

/// Listens as NAME.sock, and says in NAME.rank which rank it is, if it is one. Replaces a socket without a listener, but never a live one, whether it belongs
/// to another process or to this one. Waits for `folder_lock_deadline` at most, then refuses with
/// errc::timed_out.
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

}  // namespace penstock::control
