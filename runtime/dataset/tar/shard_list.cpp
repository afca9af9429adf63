#include "runtime/dataset/tar/shard_list.hpp"

#include "runtime/base/text.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/tar/frame_reader.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace penstock {
namespace {

std::string_view compression_of(std::string_view name) noexcept {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> endings{{{".tar.gz", "gzip"},
                                                                                  {".tgz", "gzip"},
                                                                                  {".tar.bz2", "bzip2"},
                                                                                  {".tbz2", "bzip2"},
                                                                                  {".tar.xz", "xz"},
                                                                                  {".txz", "xz"},
                                                                                  {".tar.lz4", "lz4"}}};
  for (const auto& [ending, program] : endings)
    if (ends_with_any_case(name, ending)) return program;
  return {};
}

constexpr file_kind shard_files{
    .one = "shard",
    .many = "shards",
    .text = "*.tar, *.tar.zst",
    .belongs = [](std::string_view name) { return ends_with_any_case(name, ".tar") || is_zstd_name(name) || !compression_of(name).empty(); }};

/// If a shard and its compressed copy were both in the list, each sample would be delivered twice.
result<void> check_listed_once(const shard_list& list) {
  std::unordered_map<std::string_view, std::string_view> by_stem;
  for (const std::string_view name : list.names) {
    const std::string_view stem = stem_of_shard(name);
    if (const auto [same, is_new] = by_stem.emplace(stem, name); !is_new)
      return refuse(errc::dataset, "'{}' and '{}' are both listed, so each sample would be delivered twice: name the shards by a pattern, such as '*{}'",
                    printable(same->second), printable(name), printable(name.substr(stem.size())));
  }
  return {};
}

}  // namespace

std::string_view stem_of_shard(std::string_view name) noexcept {
  for (const std::string_view ending : {".tar.zst", ".tzst", ".tar"})
    if (ends_with_any_case(name, ending)) return name.substr(0, name.size() - ending.size());
  return name;
}

std::string folder_of_shards(const std::string& path) {
  return folder_of_files(path, shard_files);
}

result<shard_list> list_shards(const std::string& path, const store_options& options) {
  auto list = find_files(path, shard_files, options);
  if (!list) return list;
  for (std::size_t i = 0; i < list->names.size(); ++i) {
    if (const std::string_view program = compression_of(list->names[i]); !program.empty()) {
      return refuse(errc::dataset,
                    "'{}' is named as if compressed with {}: only zstd is read (.tar.zst with a seek table); decompress them",
                    printable(list->path(i)), program);
    }
  }
  if (auto ok = check_listed_once(*list); !ok) return tl::unexpected(std::move(ok.error()));
  return list;
}

}  // namespace penstock
