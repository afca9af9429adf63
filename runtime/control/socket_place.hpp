// Where control sockets lie, and taking and giving up a name there. One folder a user, readable by nobody
// else.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock::control {

/// $XDG_RUNTIME_DIR/penstock, else /tmp/penstock-UID.
[[nodiscard]] std::filesystem::path socket_folder();

/// The same, made if it is missing. Refuses a folder that belongs to somebody else, that others may enter, or
/// that is a link: whoever owns it could stand between session and CLI.
result<std::filesystem::path> make_socket_folder();

struct bound_socket {
  unique_fd listener;  ///< listening, non-blocking, close-on-exec
  std::filesystem::path path;
  bool renamed = false;  ///< a live session had the name; this one is NAME-PID, or NAME-PID-2 and so on
};

/// How long the folder may be locked by others, who have it for the time of a bind or an unlink: longer only
/// if one of them was stopped meanwhile.
inline constexpr std::chrono::milliseconds folder_lock_deadline{200};

/// Listens as NAME.sock. A socket that nobody listens on is replaced; a live one is never taken over, whether
/// it is another process' or of this one. Waits for `folder_lock_deadline` at most, then refuses with
/// errc::timed_out.
result<bound_socket> bind_session_socket(const std::string& name, int pid);

struct found_session {
  std::string name;
  std::filesystem::path path;
  bool alive = false;
};

/// All sockets in the folder, sorted by name.
[[nodiscard]] std::vector<found_session> find_sessions();

/// Removes the sockets that nobody listens on; how many. None if the folder stays locked for the deadline.
std::size_t remove_dead_sockets();

/// A connected, non-blocking stream socket to a control socket. Never waits: refuses with errc::io when
/// nobody listens, with errc::timed_out when somebody does but does not come to take connections at the
/// moment.
result<unique_fd> connect_to(const std::filesystem::path& socket);

}  // namespace penstock::control
