#include "runtime/dataset/tar/shard_list.hpp"

#include "runtime/base/text.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/tar/frame_reader.hpp"

#include <algorithm>
#include <array>
#include <unordered_set>

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

/// A shard and what it was compressed to, next to each other: its samples would come twice.
result<void> check_listed_once(const shard_list& list) {
  const std::unordered_set<std::string_view> names(list.names.begin(), list.names.end());
  for (const std::string& name : list.names) {
    const std::string_view plain = std::string_view(name).substr(0, name.size() - std::min<std::size_t>(name.size(), 4));
    if (is_zstd_name(name) && names.contains(plain))
      return refuse(errc::dataset, "'{}' is listed as well as '{}', and would give its samples twice: name the shards by a pattern, such as '*.tar.zst'",
                    printable(plain), printable(name));
  }
  return {};
}

}  // namespace

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
