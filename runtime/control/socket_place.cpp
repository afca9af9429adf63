#include "runtime/control/socket_place.hpp"

#include "runtime/base/patient_deadline.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/control/session_record.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

namespace penstock::control {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr std::string_view suffix = ".sock";
constexpr int backlog = 64;  // as many as the server serves at once (connections_max)
constexpr std::chrono::milliseconds lock_retry{5};

result<sockaddr_un> address_of(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path) {
    return refuse(errc::io, "'{}' is too long for a socket: {} of at most {} bytes", printable(path.native()),
                  path.native().size(), sizeof address.sun_path - 1);
  }
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  return address;
}

result<unique_fd> new_socket() {
  unique_fd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return refuse_os(errc::system, errno, "creating a control socket");
  return made;
}

/// While this lock is held, no other process of this user searches for, removes or creates sockets.
result<unique_fd> lock_folder(const fs::path& folder) {
  unique_fd lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!lock) return refuse_os(errc::io, errno, fmt::format("locking '{}'", folder.string()));
  patient_deadline until(folder_lock_deadline, look_interval(folder_lock_deadline, folder_lock_deadline));
  until.restart(std::chrono::steady_clock::now());
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return refuse_os(errc::io, errno, fmt::format("locking '{}'", folder.string()));
    if (until.is_over(std::chrono::steady_clock::now())) {
      return refuse(errc::timed_out,
                    "'{}' has been locked for {} ms by another process (fuser -v {} names it)",
                    folder.string(), folder_lock_deadline.count(), folder.string());
    }
    std::this_thread::sleep_for(lock_retry);
  }
  return lock;
}

fs::path note_of(fs::path socket) {
  return socket.replace_extension(".rank");
}

result<void> write_note(const fs::path& socket, const std::optional<rank_note>& rank) {
  const fs::path file = note_of(socket);
  ::unlink(file.c_str());
  if (!rank) return {};
  const std::string text = json{{"job", rank->job}, {"group", rank->group}, {"rank", rank->rank}}.dump(
                               -1, ' ', false, json::error_handler_t::replace) +
                           "\n";
  const unique_fd out(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const int why = out ? write_all(out.get(), text) : errno;
  if (why == 0) return {};
  return refuse_os(errc::io, why, fmt::format("writing '{}'", printable(file.native())));
}

std::optional<rank_note> read_note(const fs::path& socket) {
  std::ifstream in(note_of(socket), std::ios::binary);
  const json note = json::parse(in, nullptr, false);
  if (!note.is_object()) return std::nullopt;
  const json job = note.value("job", json());
  const json group = note.value("group", json());
  const json rank = note.value("rank", json());
  if (!job.is_string() || !group.is_string() || !rank.is_number_unsigned()) return std::nullopt;
  return rank_note{job.get<std::string>(), group.get<std::string>(), rank.get<std::uint32_t>()};
}

bool somebody_listens(const fs::path& socket) {
  const auto connected = connect_to(socket);
  return connected.has_value() || connected.error().code == errc::timed_out;
}

}  // namespace

fs::path socket_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return fs::path(runtime) / "penstock";
  return fmt::format("/tmp/penstock-{}", ::geteuid());
}

result<fs::path> make_socket_folder() {
  const fs::path folder = socket_folder();
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return refuse_os(errc::io, errno,
                     fmt::format("creating the folder of control sockets '{}'", folder.string()));
  }
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) != 0) {
    return refuse_os(errc::io, errno, fmt::format("checking '{}'", folder.string()));
  }
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != ::geteuid() || (facts.st_mode & 077) != 0) {
    return refuse(
        errc::io,
        "'{}' is not a private folder of this user (owner {}, mode {:o}): not putting a control socket there",
        folder.string(), facts.st_uid, facts.st_mode & 07777U);
  }
  return folder;
}

result<bound_socket> bind_session_socket(const std::string& name, int pid,
                                         const std::optional<rank_note>& rank) {
  auto folder = make_socket_folder();
  if (!folder) return tl::unexpected(std::move(folder.error()));
  const auto lock = lock_folder(*folder);
  if (!lock) return tl::unexpected(lock.error());
  bound_socket bound;
  bound.path = *folder / (name + std::string(suffix));
  for (int number = 1; somebody_listens(bound.path); ++number) {
    bound.renamed = true;
    bound.path = *folder / (number == 1 ? fmt::format("{}-{}{}", name, pid, suffix)
                                        : fmt::format("{}-{}-{}{}", name, pid, number, suffix));
  }
  const auto address = address_of(bound.path);
  if (!address) return tl::unexpected(address.error());
  auto listener = new_socket();
  if (!listener) return tl::unexpected(std::move(listener.error()));
  ::unlink(bound.path.c_str());
  // Written before the session can be found.
  if (auto ok = write_note(bound.path, rank); !ok) return tl::unexpected(std::move(ok.error()));
  if (::bind(listener->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::chmod(bound.path.c_str(), 0600) != 0 || ::listen(listener->get(), backlog) != 0) {
    return refuse_os(errc::io, errno,
                     fmt::format("opening the control socket '{}'", printable(bound.path.native())));
  }
  ::fcntl(listener->get(), F_SETFL, O_NONBLOCK);
  bound.listener = std::move(*listener);
  return bound;
}

std::vector<found_session> find_sessions() {
  std::vector<found_session> sessions;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(socket_folder(), ignored)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(suffix)) continue;
    sessions.push_back({file.substr(0, file.size() - suffix.size()), entry.path(),
                        somebody_listens(entry.path()), read_note(entry.path())});
  }
  std::ranges::sort(sessions, {}, &found_session::name);
  return sessions;
}

std::size_t remove_dead_sockets() {
  const auto lock = lock_folder(socket_folder());
  if (!lock) return 0;
  std::size_t removed = 0;
  for (const found_session& s : find_sessions()) {
    if (s.alive) continue;
    remove_session_socket(s.path);
    ++removed;
  }
  return removed;
}

void remove_session_socket(const fs::path& socket) noexcept {
  ::unlink(note_of(socket).c_str());
  ::unlink(socket.c_str());
}

result<unique_fd> connect_to(const fs::path& socket) {
  const auto address = address_of(socket);
  if (!address) return tl::unexpected(address.error());
  auto made = new_socket();
  if (!made) return made;
  if (::connect(made->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    return refuse_os(errno == EAGAIN ? errc::timed_out : errc::io, errno,
                     fmt::format("connecting to '{}'", printable(socket.native())));
  }
  return made;
}

namespace {

/// A suspended session accepts no connections, so its backlog fills up. Its record contains the pid, too.
pid_t process_in_record(const fs::path& socket) {
  const std::string name = socket.stem().string();
  for (const found_record& r : find_records()) {
    if (!r.live || r.path.parent_path() != socket.parent_path()) continue;
    const std::string pid = r.id.substr(r.id.rfind('-') + 1);
    const std::string renamed = r.session + "-" + pid;  // named NAME-PID, because the session's name was in use
    const bool is_its = name == r.session ? !fs::exists(socket.parent_path() / (renamed + std::string(suffix)))
                                          : name == renamed || name.starts_with(renamed + "-");
    if (is_its) return static_cast<pid_t>(std::atol(pid.c_str()));
  }
  return 0;
}

}  // namespace

pid_t process_behind(const fs::path& socket) {
  const auto connected = connect_to(socket);
  if (!connected && connected.error().code == errc::timed_out) return process_in_record(socket);
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return connected && ::getsockopt(connected->get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? peer.pid : 0;
}

}  // namespace penstock::control
