#include "runtime/base/output_lock.hpp"

#include "runtime/base/file_text.hpp"
#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <sstream>
#include <utility>

namespace penstock {
namespace {

// A second try is needed only if another run has removed the file since the first.
constexpr int lock_tries = 100;

std::optional<pid_t> holder_of(int fd) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return std::nullopt;
  return lock_holder_in(text_of_file("/proc/locks"), {major(facts.st_dev), minor(facts.st_dev), facts.st_ino});
}

failure locked_by_another(int fd, std::string_view what) {
  const auto pid = holder_of(fd);
  const bool own = pid == ::getpid();
  return {errc::io,
          fmt::format("another {} is writing {}{}: wait until it has ended, stop it, or choose another path",
                      own ? "session of this process" : "run", what,
                      own   ? ""
                      : pid ? fmt::format(" (pid {})", *pid)
                            : " (on another machine; if that has crashed, its lock ends when the file server drops it)"),
          0};
}

bool is_still_there(const std::string& path, int fd) {
  struct stat by_path {};
  struct stat by_fd {};
  return ::lstat(path.c_str(), &by_path) == 0 && ::fstat(fd, &by_fd) == 0 && by_path.st_ino == by_fd.st_ino &&
         by_path.st_dev == by_fd.st_dev;
}

/// A link and the file that it points to share a lock. Empty if the path belongs to something other than a
/// regular file.
std::string lock_file_of(const std::string& path) {
  if (path.empty()) return {};
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) return {};
  const auto real = std::filesystem::weakly_canonical(std::filesystem::absolute(path, unknown), unknown);
  return (unknown ? path : real.string()) + ".penstock-lock";
}

/// Opens for writing if possible, because NFS locks only such files. A file left by another user's killed run may be
/// read-only.
unique_fd open_lock_file(const std::string& file) {
  constexpr int flags = O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  unique_fd fd(::open(file.c_str(), O_RDWR | flags, 0666));
  if (!fd && errno == EACCES) fd.reset(::open(file.c_str(), O_RDONLY | flags, 0666));
  return fd;
}

}  // namespace

std::optional<pid_t> lock_holder_in(std::string_view proc_locks, const locked_file& file) {
  const std::string place = fmt::format("{:02x}:{:02x}:{}", file.major, file.minor, file.inode);
  std::istringstream lines{std::string(proc_locks)};
  for (std::string line; std::getline(lines, line);) {
    // "3: FLOCK  ADVISORY  WRITE 4711 fe:00:10977574 0 EOF"; the line of a waiting process has "->" after the number.
    std::istringstream words(line);
    std::string number, kind, rule, access, pid, at;
    if (!(words >> number >> kind >> rule >> access >> pid >> at) || kind == "->" || at != place) continue;
    if (const auto found = whole_number<pid_t>(pid); found.value_or(0) > 0) return found;
  }
  return std::nullopt;
}

result<void> lock_output(int fd, std::string_view what) {
  int locked = 0;
  do locked = ::flock(fd, LOCK_EX | LOCK_NB);
  while (locked != 0 && errno == EINTR);
  if (locked != 0 && errno == EWOULDBLOCK) return tl::unexpected(locked_by_another(fd, what));
  return {};
}

output_lock::output_lock(unique_fd fd, std::string file) : fd_(std::move(fd)), file_(std::move(file)), owner_(::getpid()) {}

output_lock::output_lock(output_lock&& other) noexcept
    : fd_(std::move(other.fd_)), file_(std::exchange(other.file_, {})), owner_(other.owner_) {}

output_lock& output_lock::operator=(output_lock&& other) noexcept {
  output_lock taken(std::move(other));
  std::swap(fd_, taken.fd_);
  std::swap(file_, taken.file_);
  std::swap(owner_, taken.owner_);
  return *this;
}

output_lock::~output_lock() {
  if (!fd_ || owner_ != ::getpid()) return;  // in a forked child, the lock belongs to the parent
  struct stat facts {};
  // Remove it before unlocking: afterwards another run may have locked it. A file that is not empty is not ours.
  if (!file_.empty() && is_still_there(file_, fd_.get()) && ::fstat(fd_.get(), &facts) == 0 && facts.st_size == 0) ::unlink(file_.c_str());
  ::flock(fd_.get(), LOCK_UN);  // forked children share the lock
}

result<output_lock> output_lock::of_file(const std::string& path, std::string_view what) {
  const std::string file = lock_file_of(path);
  for (int tries = 0; !file.empty() && tries < lock_tries; ++tries) {
    unique_fd fd = open_lock_file(file);
    if (!fd) break;
    if (auto ok = lock_output(fd.get(), what); !ok) return tl::unexpected(std::move(ok.error()));
    if (is_still_there(file, fd.get())) return output_lock(std::move(fd), file);
  }
  return output_lock();
}

result<output_lock> output_lock::of_folder(const std::string& path, std::string_view what) {
  unique_fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return output_lock();
  if (auto ok = lock_output(fd.get(), what); !ok) return tl::unexpected(std::move(ok.error()));
  return output_lock(std::move(fd), {});
}

result<std::vector<output_lock>> lock_files(std::string_view what, const std::vector<std::string>& paths) {
  std::vector<output_lock> locks;
  for (const std::string& path : paths) {
    auto lock = output_lock::of_file(path, fmt::format("{} '{}'", what, printable(path)));
    if (!lock) return tl::unexpected(std::move(lock.error()));
    locks.push_back(std::move(*lock));
  }
  return locks;
}

}  // namespace penstock
