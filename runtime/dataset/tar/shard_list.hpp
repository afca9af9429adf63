// Which shards a tar dataset consists of, from its path. Used by the session.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/storage/object_store.hpp"

#include <memory>
#include <string>
#include <vector>

namespace penstock {

struct shard_list {
  std::string folder;              ///< what the names are relative to, without a slash at its end; "" is "/"
  std::vector<std::string> names;  ///< in the order of sample indices; at least one, none twice
  std::vector<std::string> notices;
  std::shared_ptr<object_store> store;  ///< of a URL, else none
  std::vector<object_facts> facts;      ///< then: size and version of each shard
};

/// `path` is one file, a folder (all *.tar directly in it, in byte order), or a pattern: braces ({000..127},
/// {a,b}) are expanded first, in order, then *, ? and [] in each result, in byte order. A path that exists is
/// taken literally. Refuses (errc::dataset, errc::io) what is missing, a pattern without a match, a shard listed
/// twice, more than 10^6 shards, and names of compressed shards. It opens no shard.
///
/// "s3://bucket/..." takes the same forms; a folder means the objects below it, and a pattern is never taken literally.
/// "http://..." and "https://..." are one shard or a pattern of braces. Refuses (errc::config, errc::io) also what object_store refuses.
result<shard_list> list_shards(const std::string& path, const store_options& options = {});

/// shard_list::folder for this path.
std::string folder_of_shards(const std::string& path);

}  // namespace penstock
