#include "runtime/dataset/tokens/open_files.hpp"

#include "runtime/dataset/file_reader.hpp"

#include <algorithm>

namespace penstock {

result<open_token_files::kept_file*> open_token_files::keep(const token_index& index, std::uint64_t file) {
  kept_file* oldest = kept_.data();
  for (kept_file& kept : kept_) {
    if (kept.used > 0 && kept.file == file) {
      kept.used = ++uses_;
      return &kept;
    }
    if (kept.used < oldest->used) oldest = &kept;
  }
  *oldest = {};
  const indexed_token_file facts = index.file(file);
  auto opened = open_listed(path_of_token_file(folder_, facts.name), facts.bytes);
  if (!opened) return tl::unexpected(std::move(opened.error()));
  oldest->file = file;
  oldest->used = ++uses_;
  oldest->fd = std::move(*opened);
  return oldest;
}

result<void> open_token_files::read(const token_index& index, std::uint64_t file, std::uint64_t at,
                                    std::span<std::byte> into) {
  auto kept = keep(index, file);
  if (!kept) return tl::unexpected(std::move(kept.error()));
  auto done = read_exactly((*kept)->fd.get(), at, into);
  if (!done) **kept = {};  // after ESTALE a new descriptor is needed
  return done;
}

result<const megatron_index*> open_token_files::documents(const token_index& index, std::uint64_t file) {
  auto kept = keep(index, file);
  if (!kept) return tl::unexpected(std::move(kept.error()));
  kept_file& one = **kept;
  if (one.documents) return &*one.documents;
  const indexed_token_file facts = index.file(file);
  auto listed = open_listed(index_path_of(path_of_token_file(folder_, facts.name)), facts.index_bytes);
  if (!listed) return tl::unexpected(std::move(listed.error()));
  one.index_fd = std::move(*listed);
  const auto read = [raw = one.index_fd.get()](std::uint64_t at, std::span<std::byte> into) {
    return read_exactly(raw, at, into);
  };
  auto opened = megatron_index::open(read, facts.index_bytes, facts.bytes);
  if (!opened) return tl::unexpected(std::move(opened.error()));
  one.documents.emplace(std::move(*opened));
  return &*one.documents;
}

}  // namespace penstock
