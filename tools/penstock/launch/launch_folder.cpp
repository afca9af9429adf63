#include "tools/penstock/launch/launch_folder.hpp"

#include "runtime/base/fnv1a.hpp"
#include "runtime/control/socket_place.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view unique = "XXXXXX";
constexpr int attempts = 100;

/// Processes with the same folder of control sockets share the folders of launchers. $TMPDIR may be shared
/// more widely: by another user, or by the same user in a container or with a different runtime folder.
std::string prefix() {
  return fmt::format("penstock-launch-{:016x}-", fnv1a(control::socket_folder().native()));
}

unique_fd opened(const fs::path& folder) {
  return unique_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/// 0, or an errno; EWOULDBLOCK: another process has the lock.
int try_to_lock(const unique_fd& folder) {
  while (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

/// Whether the path still names the folder that was opened.
bool is_still_there(const fs::path& path, const unique_fd& folder) {
  struct stat by_path {};
  struct stat by_fd {};
  return ::lstat(path.c_str(), &by_path) == 0 && ::fstat(folder.get(), &by_fd) == 0 &&
         by_path.st_ino == by_fd.st_ino && by_path.st_dev == by_fd.st_dev;
}

/// The lock of a folder whose launcher is gone; empty if the folder is in use, or is not a launcher folder of
/// this user.
unique_fd lock_of_left(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::string mine = prefix();
  if (!name.starts_with(mine) || name.size() != mine.size() + unique.size()) return {};
  unique_fd folder = opened(path);
  struct stat facts {};
  if (!folder || ::fstat(folder.get(), &facts) != 0 || facts.st_uid != ::geteuid()) return {};
  return try_to_lock(folder) == 0 ? std::move(folder) : unique_fd();
}

/// The launcher folders in $TMPDIR whose launchers are gone, with their locks.
std::vector<std::pair<fs::path, unique_fd>> left_folders() {
  std::vector<std::pair<fs::path, unique_fd>> left;
  std::error_code trouble;
  const fs::path parent = fs::temp_directory_path(trouble);
  if (trouble) return left;
  for (auto entry = fs::directory_iterator(parent, trouble); !trouble && entry != fs::directory_iterator();
       entry.increment(trouble)) {
    if (unique_fd lock = lock_of_left(entry->path())) left.emplace_back(entry->path(), std::move(lock));
  }
  return left;
}

}  // namespace

launch_folder::~launch_folder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

result<void> launch_folder::make() {
  constexpr const char* what = "making a folder for the ranks' reports";
  std::error_code trouble;
  const fs::path parent = fs::temp_directory_path(trouble);
  if (trouble) return refuse_os(errc::io, trouble.value(), what);
  // A process that looks for abandoned folders may find this one before it is locked: then make another one.
  for (int i = 0; i < attempts; ++i) {
    std::string path = (parent / (prefix() + std::string(unique))).string();
    if (::mkdtemp(path.data()) == nullptr) return refuse_os(errc::io, errno, what);
    unique_fd lock = opened(path);
    // A file system without locks is accepted: there, no process can mistake the folder for an
    // abandoned one.
    if (!lock || try_to_lock(lock) == EWOULDBLOCK || !is_still_there(path, lock)) {
      ::rmdir(path.c_str());
      continue;
    }
    path_ = std::move(path);
    lock_ = std::move(lock);
    return {};
  }
  return refuse(errc::io, "{} in '{}': other processes keep removing it as a leftover", what,
                parent.string());
}

std::vector<fs::path> left_launch_folders() {
  std::vector<fs::path> paths;
  for (const auto& [path, lock] : left_folders()) paths.push_back(path);
  std::ranges::sort(paths);
  return paths;
}

std::size_t remove_left_launch_folders() {
  std::size_t removed = 0;
  for (const auto& [path, lock] : left_folders()) {
    std::error_code trouble;
    if (is_still_there(path, lock) && fs::remove_all(path, trouble) > 0 && !trouble) ++removed;
  }
  return removed;
}

}  // namespace penstock::cli
