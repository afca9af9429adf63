#include "runtime/base/replace_file.hpp"

#include "runtime/base/fd.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/write_all.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

namespace penstock {
namespace {

constexpr mode_t mode_of_new_files = 0666;  // the umask applies

// Killed processes with the same pid may have left files of these names. More than this many are implausible.
constexpr int names_tried = 100;

constexpr std::string_view temporary_ending = ".tmp-";  // then "PID-N"

struct replaced {
  std::string path;             // not a symbolic link
  std::optional<mode_t> keeps;  // permissions of the existing file
};

tl::unexpected<failure> no(int os_code, const std::string& path) {
  return refuse_os(errc::io, os_code, fmt::format("writing '{}'", printable(path)));
}

result<replaced> look_at(const std::string& path) {
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0) {
    // A dangling link is itself replaced.
    if (errno == ENOENT) return replaced{path, std::nullopt};
    return no(errno, path);
  }
  if (!S_ISREG(there.st_mode)) {
    return refuse(errc::io, "writing '{}': it exists and is not a regular file; refusing to replace it",
                  printable(path));
  }
  std::error_code code;
  const std::filesystem::path real = std::filesystem::canonical(path, code);
  if (code) return no(code.value(), path);
  return replaced{real.string(), there.st_mode & 07777};
}

/// A temporary file next to the one to replace; removed with this object unless it was renamed.
class temporary_file {
 public:
  static result<temporary_file> create(const std::string& beside) {
    static std::atomic<std::uint64_t> number = 0;
    for (int tries = 0;; ++tries) {
      std::string path = fmt::format("{}{}{}-{}", beside, temporary_ending, ::getpid(), ++number);
      unique_fd fd(
          ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode_of_new_files));
      if (fd) return temporary_file(std::move(path), std::move(fd));
      if (errno == EINTR || (errno == EEXIST && tries < names_tried)) continue;
      if (const auto folder = std::filesystem::path(beside).parent_path(); errno == ENOENT && !folder.empty())
        return refuse(errc::io, "writing '{}': the folder '{}' does not exist", printable(beside), printable(folder.string()));
      return no(errno, beside);
    }
  }
  temporary_file(temporary_file&& other) noexcept
      : path_(std::exchange(other.path_, {})), fd_(std::move(other.fd_)) {}
  temporary_file& operator=(temporary_file&&) = delete;
  ~temporary_file() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// Returns 0 or the errno.
  [[nodiscard]] int rename_to(const std::string& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0) return errno;
    path_.clear();
    return 0;
  }

 private:
  temporary_file(std::string path, unique_fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  unique_fd fd_;
};

/// Makes the rename survive a power failure. Errors are ignored, because not every file system supports this.
void sync_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const unique_fd fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) ::fsync(fd.get());
}

}  // namespace

result<void> replace_file(const std::string& path, std::string_view contents) {
  auto target = look_at(path);
  if (!target) return tl::unexpected(std::move(target.error()));
  auto file = temporary_file::create(target->path);
  if (!file) return tl::unexpected(std::move(file.error()));
  if (target->keeps && ::fchmod(file->fd(), *target->keeps) != 0) return no(errno, path);
  if (const int code = write_all(file->fd(), contents)) return no(code, path);
  if (::fsync(file->fd()) != 0) return no(errno, path);
  if (const int code = file->rename_to(target->path)) return no(code, path);
  sync_folder_of(target->path);
  return {};
}

void remove_leftovers(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string beginning = file.filename().string() + std::string(temporary_ending);
  std::error_code fault;
  std::vector<std::filesystem::path> found;
  for (std::filesystem::directory_iterator at(file.has_parent_path() ? file.parent_path() : ".", fault), end; !fault && at != end; at.increment(fault)) {
    const std::string name = at->path().filename().string();
    const auto is_of_a_number = [](char c) { return c == '-' || (c >= '0' && c <= '9'); };
    if (name.starts_with(beginning) && std::ranges::all_of(name.substr(beginning.size()), is_of_a_number)) found.push_back(at->path());
  }
  for (const std::filesystem::path& one : found) ::unlink(one.c_str());
}

result<void> check_replaceable(const std::string& path) {
  auto target = look_at(path);
  if (!target) return tl::unexpected(std::move(target.error()));
  auto tried = temporary_file::create(target->path);
  if (!tried) return tl::unexpected(std::move(tried.error()));
  return {};
}

}  // namespace penstock
