#include "runtime/dataset/tar/shard_list.hpp"

#include "runtime/base/text.hpp"
#include "runtime/dataset/listing/names.hpp"

#include <array>

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

constexpr file_kind shard_files{
    .one = "shard",
    .many = "shards",
    .text = "*.tar",
    .belongs = [](std::string_view name) { return ends_with_any_case(name, ".tar") || !compression_of(name).empty(); }};

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
                    "'{}' is named as if compressed with {}: compressed shards are not read; decompress them",
                    printable(list->path(i)), program);
    }
  }
  return list;
}

}  // namespace penstock
