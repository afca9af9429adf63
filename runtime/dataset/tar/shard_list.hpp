// Which shards a tar dataset consists of, from its path. Used by the session.
#pragma once

#include "runtime/base/result.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct shard_list {
  std::string folder;              ///< what the names are relative to, without a slash at its end; "" is "/"
  std::vector<std::string> names;  ///< in the order of sample indices; at least one, none twice
  std::vector<std::string> notices;
};

/// `path` is one file, a folder (all *.tar directly in it, in byte order), or a pattern: braces ({000..127},
/// {a,b}) are expanded first, in order, then *, ? and [] in each result, in byte order. A path that exists is
/// taken literally. Refuses (errc::dataset, errc::io) what is missing, a pattern without a match, a shard listed
/// twice, more than 10^6 shards, and names of compressed shards. It opens no shard.
result<shard_list> list_shards(const std::string& path);

/// The folder of shard_list for this path: literal text up to the last slash before the first brace or wildcard,
/// or the path itself if it is a folder. For workers, which have the names from the index.
std::string shard_folder(const std::string& path);

/// Expands braces: "a{1..3,x}b", nested and repeated. A range keeps the width of its longer number if one begins
/// with 0; {10..1} counts down and {0..9..3} in steps. What is no list or range stays as it is. Refuses (errc::dataset)
/// more than 10^6 results.
result<std::vector<std::string>> expand_braces(std::string_view pattern);

}  // namespace penstock
