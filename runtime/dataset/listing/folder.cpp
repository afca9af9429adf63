#include "runtime/dataset/listing/folder.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>
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
                                    bool (*wanted)(std::string_view name),
                                    std::string_view (*skipped)(std::string_view name)) {
  folder_contents contents;
  const auto skip = [&](std::string_view name) {
    const std::string_view ending = skipped != nullptr ? skipped(name) : std::string_view();
    if (!ending.empty()) ++contents.skipped[std::string(ending)];
  };
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
    if (name.starts_with('.')) {
      if (entry->d_type != DT_DIR && name != "." && name != ".." && wanted(name)) ++contents.hidden;
      continue;
    }
    if (entry->d_type == DT_DIR) {
      contents.entries.push_back({std::string(name), entry_kind::folder, 0});
      continue;
    }
    const bool may_be_folder = entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN;
    if (!may_be_folder && !wanted(name)) {
      skip(name);
      continue;
    }
    if (::fstatat(fd, entry->d_name, &facts, 0) == 0) {
      if (S_ISDIR(facts.st_mode)) {
        contents.entries.push_back({std::string(name), entry_kind::folder, 0});
      } else if (wanted(name)) {
        contents.entries.push_back(
            {std::string(name), entry_kind::other, static_cast<std::uint64_t>(facts.st_size)});
      } else {
        skip(name);
      }
    } else if (errno == ENOENT || errno == ELOOP) {
      // A dangling link counts as a sample. Loading it fails with an error that names it.
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

std::string skipped_text(const skipped_files& files) {
  std::vector<std::pair<std::string, std::uint64_t>> kinds(files.begin(), files.end());
  std::ranges::stable_sort(kinds, std::greater(), [](const auto& kind) { return kind.second; });
  std::uint64_t all = 0;
  std::string list;
  for (const auto& [ending, count] : kinds) {
    all += count;
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", ending, count);
  }
  if (all == 0) return {};
  return fmt::format("{} file{} skipped: {}", all, all == 1 ? "" : "s", list);
}

result<std::vector<std::string>> files_of_folder(const std::string& path, std::string_view what,
                                                 std::vector<std::string>& notices,
                                                 bool (*wanted)(std::string_view name)) {
  auto opened = open_folder(AT_FDCWD, path, path);
  if (!opened) return tl::unexpected(std::move(opened.error()));
  auto contents = read_folder(std::move(*opened), path, wanted);
  if (!contents) return tl::unexpected(std::move(contents.error()));
  std::vector<std::string> paths;
  std::size_t folders = 0;
  for (const folder_entry& entry : contents->entries) {
    if (entry.kind == entry_kind::folder)
      ++folders;
    else
      paths.push_back(path + "/" + entry.name);
  }
  if (!paths.empty() && folders > 0)
    notices.push_back(
        fmt::format("{} folder{} in '{}' {} ignored: write a pattern to read {} from several folders",
                    folders, folders == 1 ? "" : "s", printable(path), folders == 1 ? "is" : "are", what));
  if (const std::uint64_t hidden = contents->hidden; !paths.empty() && hidden > 0)
    notices.push_back(fmt::format("{} in '{}' {} ignored: {} {} with a dot", counted(hidden, "file"), printable(path), hidden == 1 ? "is" : "are",
                                  hidden == 1 ? "its name" : "their names", hidden == 1 ? "begins" : "begin"));
  return paths;
}

}  // namespace penstock
