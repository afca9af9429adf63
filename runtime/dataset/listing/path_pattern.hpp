// Paths with braces and wildcards, as [dataset] path may be. Used by the lists of shards and of token files.
#pragma once

#include "runtime/base/result.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Whether it has a brace or a wildcard. A file's name may have them, too.
bool is_pattern(std::string_view path) noexcept;

/// Expands braces: "a{1..3,x}b", nested and repeated. A range keeps the width of its longer number if one begins with
/// 0; {10..1} counts down and {0..9..3} in steps. Braces that are neither a list nor a range stay unchanged. Refuses
/// (errc::dataset) more than 10^6 results.
result<std::vector<std::string>> expand_braces(std::string_view pattern);

/// Braces are expanded first, in order, then *, ? and [] in each result, in byte order. A result that exists is taken
/// literally. Refuses (errc::dataset, errc::io) wildcards without a match; `what` says what was looked for: "shard".
result<std::vector<std::string>> paths_of_pattern(const std::string& path, std::string_view what);

/// What the names of a pattern are relative to: literal text up to the last slash before the first brace or wildcard,
/// or the path itself if it is a folder; without a slash at its end, "" is "/".
std::string folder_of_pattern(const std::string& path);

}  // namespace penstock
