#include "runtime/dataset/listing/folder.hpp"

#include "runtime/base/text.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace penstock {
namespace {

struct close_folder {
  void operator()(DIR* stream) const noexcept { ::closedir(stream); }
};

tl::unexpected<failure> refused(std::string_view shown, int os_code) {
  return refuse_os(errc::io, os_code, fmt::format("the folder '{}' cannot be read", printable(shown)));
}

}  // namespace

result<unique_fd> open_folder(int at, const std::string& path, std::string_view shown) {
  unique_fd folder(::openat(at, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK));
  if (!folder) return refused(shown, errno);
  return folder;
}

result<folder_contents> read_folder(unique_fd folder, std::string_view shown,
                                    bool (*wanted)(std::string_view name)) {
  folder_contents contents;
  struct ::stat facts {};
  if (::fstat(folder.get(), &facts) != 0) return refused(shown, errno);
  contents.identity = {facts.st_dev, facts.st_ino};
  const std::unique_ptr<DIR, close_folder> stream(::fdopendir(folder.get()));
  if (!stream) return refused(shown, errno);
  const int fd = folder.release();
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(stream.get());
    if (entry == nullptr) {
      if (errno != 0) return refused(shown, errno);
      break;
    }
    const std::string_view name(entry->d_name);
    if (name.starts_with('.')) continue;
    if (entry->d_type == DT_DIR) {
      contents.entries.push_back({std::string(name), entry_kind::folder, 0});
      continue;
    }
    const bool may_be_folder = entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN;
    if (!may_be_folder && !wanted(name)) continue;
    if (::fstatat(fd, entry->d_name, &facts, 0) == 0) {
      if (S_ISDIR(facts.st_mode)) {
        contents.entries.push_back({std::string(name), entry_kind::folder, 0});
      } else if (wanted(name)) {
        contents.entries.push_back(
            {std::string(name), entry_kind::other, static_cast<std::uint64_t>(facts.st_size)});
      }
    } else if (errno == ENOENT || errno == ELOOP) {
      // A link that leads nowhere: a sample by its name, which will fail by name when its turn comes.
      if (wanted(name)) contents.entries.push_back({std::string(name), entry_kind::other, 0});
    } else {
      return refuse_os(
          errc::io, errno,
          fmt::format("'{}' in the folder '{}' cannot be examined", printable(name), printable(shown)));
    }
  }
  std::ranges::sort(contents.entries, {}, &folder_entry::name);
  return contents;
}

}  // namespace penstock
