// One page of S3's answer to ListObjectsV2, and S3's errors. Pure. Used by the object store.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct listed_object {
  std::string key;
  std::uint64_t bytes = 0;
  std::string tag;  ///< its ETag, with the quotes
};

struct listing_page {
  std::vector<listed_object> objects;
  std::string next;  ///< the token of the next page; empty: this was the last
};

/// Refuses (errc::io) text that is not such an answer, and an incomplete list without a continuation token.
result<listing_page> parse_listing_page(std::string_view xml);

/// "ExpiredToken" of an error's body; empty if it is none of S3's.
std::string error_code_of(std::string_view xml);

}  // namespace penstock
