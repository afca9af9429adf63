// Which shards a tar dataset consists of, from its path. Used by the session.
#pragma once

#include "runtime/dataset/listing/found_files.hpp"

namespace penstock {

using shard_list = found_files;

/// Finds shards like find_files. Also refuses (errc::dataset) shards whose names say that they are compressed, but not
/// with zstd; and two shards with the same stem, because one is probably a compressed copy of the other.
result<shard_list> list_shards(const std::string& path, const store_options& options = {});

/// A shard's name without its ending .tar, .tar.zst or .tzst (in any case).
std::string_view stem_of_shard(std::string_view name) noexcept;

/// The value of shard_list::folder for this path.
std::string folder_of_shards(const std::string& path);

}  // namespace penstock
