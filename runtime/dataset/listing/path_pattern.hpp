// Expands paths with braces and wildcards, which [dataset] path may have. Used by the lists of shards and of token
// files.
#pragma once

#include "runtime/base/result.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Whether the path has a brace or a wildcard. The names of existing files may contain them, too.
bool is_pattern(std::string_view path) noexcept;

/// Expands braces: "a{1..3,x}b", nested and repeated. A range keeps the width of its longer number if one begins with
/// 0; {10..1} counts down and {0..9..3} in steps. Braces that are neither a list nor a range stay unchanged. Refuses
/// (errc::dataset) more than 10^6 results.
result<std::vector<std::string>> expand_braces(std::string_view pattern);

/// A path that exists is taken literally. Otherwise expands braces, in order, then *, ? and [] in each result that does
/// not exist, in byte order. Refuses (errc::dataset, errc::io) wildcards without a match. `what` names the kind of file in messages:
/// "shard".
result<std::vector<std::string>> paths_of_pattern(const std::string& path, std::string_view what);

/// What the names of a pattern are relative to: the literal text up to the last slash before the first brace or
/// wildcard, or the path itself if it is a folder. Has no trailing slash; "" is "/".
std::string folder_of_pattern(const std::string& path);

}  // namespace penstock
