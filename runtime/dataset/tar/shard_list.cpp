#include "runtime/dataset/tar/shard_list.hpp"

#include "runtime/base/remote_path.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/listing/folder.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/listing/path_pattern.hpp"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
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

result<std::vector<std::string>> local_paths(const std::string& path, shard_list& list) {
  struct ::stat facts {};
  if (::stat(path.c_str(), &facts) == 0) {
    if (S_ISDIR(facts.st_mode)) return shards_of_folder(list.folder, list.notices);
    return std::vector{path};
  }
  if (errno != ENOENT && errno != ENAMETOOLONG)
    return refuse_os(errc::io, errno, fmt::format("the dataset '{}' cannot be examined", printable(path)));
  if (!is_pattern(path)) return refuse(errc::dataset, "the dataset '{}' does not exist", printable(path));
  return paths_of_pattern(path, "shard");
}

/// Of "https://host/a/b*": what follows the host's slash, where braces and wildcards may be.
std::size_t path_begin(std::string_view address) noexcept {
  return std::min(address.find('/', address.find("://") + 3), address.size());
}

bool is_folder_of_s3(std::string_view address) noexcept {
  return address.starts_with("s3://") && !is_pattern(address.substr(path_begin(address))) &&
         !ends_with_any_case(address, ".tar") && compression_of(address).empty();
}

/// Adds the objects whose names fit; a folder is the pattern "folder/*.tar".
result<void> add_matches(const std::string& pattern, shard_list& list, std::vector<std::string>& paths) {
  constexpr std::uint64_t shards_max = 1'000'000;
  const std::size_t bucket_end = path_begin(pattern) + 1;
  const std::string wanted = pattern.substr(std::min(bucket_end, pattern.size()));
  const std::string beginning = pattern.substr(0, pattern.find_first_of("*?[", bucket_end));
  if (wanted.find('/', beginning.size() - std::min(bucket_end, beginning.size())) != std::string::npos)
    return refuse(errc::dataset, "'{}' has a wildcard in the name of a folder: in s3:// paths they stand behind the last '/'",
                  printable(pattern));
  auto found = list.store->list(beginning, shards_max, [&](std::string_view key) {
    return ::fnmatch(wanted.c_str(), std::string(key).c_str(), FNM_PATHNAME | FNM_NOESCAPE) == 0;
  });
  if (!found) return tl::unexpected(std::move(found.error()));
  if (found->empty()) return refuse(errc::dataset, "no shard is named '{}'", printable(pattern));
  for (listed_object& one : *found) {
    paths.push_back(pattern.substr(0, bucket_end) + one.key);
    list.facts.push_back({one.bytes, std::move(one.tag)});
  }
  return {};
}

result<std::vector<std::string>> remote_paths(const std::string& path, const store_options& options, shard_list& list) {
  if (auto sound = parse_url(path); !sound) return tl::unexpected(std::move(sound.error()));
  auto store = object_store::open(options);
  if (!store) return tl::unexpected(std::move(store.error()));
  list.store = std::move(*store);
  if (is_folder_of_s3(path)) {
    std::vector<std::string> paths;
    if (auto ok = add_matches(list.folder + "/*.tar", list, paths); !ok) return tl::unexpected(std::move(ok.error()));
    return paths;
  }
  auto expanded = expand_braces(path);
  if (!expanded) return expanded;
  std::vector<std::string> paths;
  std::vector<std::string> single;
  for (const std::string& one : *expanded) {
    const bool wildcard = one.find_first_of("*?[", path_begin(one)) != std::string::npos;
    if (wildcard && !one.starts_with("s3://"))
      return refuse(errc::dataset,
                    "'{}' has a wildcard, but an HTTP server does not list its files: name the shards, as in "
                    "\"train-{{000..127}}.tar\"",
                    printable(one));
    if (!wildcard) {
      paths.push_back(one);
      single.push_back(one);
      list.facts.emplace_back();
    } else if (auto ok = add_matches(one, list, paths); !ok) {
      return tl::unexpected(std::move(ok.error()));
    }
  }
  auto facts = list.store->examine(single);
  if (!facts) return tl::unexpected(std::move(facts.error()));
  std::size_t next = 0;
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (next < single.size() && paths[i] == single[next]) list.facts[i] = std::move((*facts)[next++]);
  return paths;
}

}  // namespace

std::string folder_of_shards(const std::string& path) {
  if (!is_url(path)) return folder_of_pattern(path);
  if (is_folder_of_s3(path)) return path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
  const std::size_t slash = path.substr(0, path.find_first_of("{*?[", path_begin(path))).rfind('/');
  return path.substr(0, std::max(slash, path_begin(path)));
}

result<shard_list> list_shards(const std::string& path, const store_options& options) {
  if (path.empty())
    return refuse(errc::dataset,
                  "no path is given: set [dataset] path to a shard, a folder of shards or a pattern");
  shard_list list;
  list.folder = folder_of_shards(path);
  const auto paths = is_url(path) ? remote_paths(path, options, list) : local_paths(path, list);
  if (!paths) return tl::unexpected(paths.error());
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
