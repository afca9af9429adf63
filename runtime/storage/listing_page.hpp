// Parses a page of S3's answer to ListObjectsV2, and S3's errors. Pure. Used by the object store.
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
  std::string next;  ///< token of the next page; empty: this is the last page
};

/// Refuses (errc::io) text that is not such an answer, and an incomplete list without a continuation token.
result<listing_page> parse_listing_page(std::string_view xml);

/// The code in the body of an error, such as "ExpiredToken"; empty if the body is not an error of S3.
std::string error_code_of(std::string_view xml);

}  // namespace penstock
