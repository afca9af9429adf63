#include "runtime/dataset/tar/shard_list.hpp"

#include "runtime/base/text.hpp"
#include "runtime/dataset/listing/folder.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/listing/path_pattern.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <unordered_set>

namespace penstock {
namespace {

std::string_view compression_of(std::string_view name) noexcept {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> endings{{{".tar.gz", "gzip"},
                                                                                  {".tgz", "gzip"},
                                                                                  {".tar.zst", "zstd"},
                                                                                  {".tzst", "zstd"},
                                                                                  {".tar.bz2", "bzip2"},
                                                                                  {".tbz2", "bzip2"},
                                                                                  {".tar.xz", "xz"},
                                                                                  {".txz", "xz"},
                                                                                  {".tar.lz4", "lz4"}}};
  for (const auto& [ending, program] : endings)
    if (ends_with_any_case(name, ending)) return program;
  return {};
}

result<std::vector<std::string>> shards_of_folder(const std::string& path,
                                                  std::vector<std::string>& notices) {
  auto names = files_of_folder(path, "shards", notices, [](std::string_view name) {
    return ends_with_any_case(name, ".tar") || !compression_of(name).empty();
  });
  if (names && names->empty()) return refuse(errc::dataset, "no shards (*.tar) in '{}'", printable(path));
  return names;
}

}  // namespace

result<shard_list> list_shards(const std::string& path) {
  if (path.empty())
    return refuse(errc::dataset,
                  "no path is given: set [dataset] path to a shard, a folder of shards or a pattern");
  shard_list list;
  list.folder = folder_of_pattern(path);
  struct ::stat facts {};
  result<std::vector<std::string>> paths;
  if (::stat(path.c_str(), &facts) == 0) {
    if (S_ISDIR(facts.st_mode))
      paths = shards_of_folder(list.folder, list.notices);
    else
      paths = std::vector{path};
  } else if (errno != ENOENT && errno != ENAMETOOLONG) {
    return refuse_os(errc::io, errno, fmt::format("the dataset '{}' cannot be examined", printable(path)));
  } else if (!is_pattern(path)) {
    return refuse(errc::dataset, "the dataset '{}' does not exist", printable(path));
  } else {
    paths = paths_of_pattern(path, "shard");
  }
  if (!paths) return tl::unexpected(std::move(paths.error()));
  std::unordered_set<std::string_view> seen;
  for (const std::string& one : *paths) {
    if (const std::string_view program = compression_of(one); !program.empty()) {
      return refuse(errc::dataset,
                    "'{}' is named as if compressed with {}: compressed shards are not read; decompress them",
                    printable(one), program);
    }
    if (!seen.insert(one).second)
      return refuse(errc::dataset, "the shard '{}' is listed twice", printable(one));
    list.names.push_back(one.starts_with(list.folder + "/") ? one.substr(list.folder.size() + 1) : one);
  }
  return list;
}

}  // namespace penstock
