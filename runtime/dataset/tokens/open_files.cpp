#include "runtime/dataset/tokens/open_files.hpp"

#include <algorithm>

namespace penstock {

std::shared_ptr<readable> open_token_files::file(const token_index& index, std::uint64_t file) {
  return files_.file(file, [&]() -> pooled_file {
    const indexed_token_file facts = index.file(file);
    return {path_of_file(folder_, facts.name), facts.bytes, 0, std::string(facts.tag)};
  });
}

result<const megatron_index*> open_token_files::documents(const token_index& index, std::uint64_t file) {
  kept_index* place = kept_.data();
  for (kept_index& kept : kept_) {
    if (kept.used > 0 && kept.file == file) {
      kept.used = ++uses_;
      return &*kept.documents;
    }
    if (kept.used < place->used) place = &kept;
  }
  const indexed_token_file facts = index.file(file);
  *place = {};
  place->opened = std::make_unique<local_file>(index_path_of(path_of_file(folder_, facts.name)), facts.index_bytes, 0,
                                               file_check::size_when_opened);
  auto documents = megatron_index::open(reader_of(*place->opened), facts.index_bytes, facts.bytes);
  if (!documents) return tl::unexpected(std::move(documents.error()));
  place->documents.emplace(std::move(*documents));
  place->file = file;
  place->used = ++uses_;
  return &*place->documents;
}

}  // namespace penstock
