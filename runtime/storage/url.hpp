// Paths that are URLs: s3://, http:// and https://. Pure. Used wherever [dataset] path may be one.
#pragma once

#include "runtime/base/remote_path.hpp"
#include "runtime/base/result.hpp"

#include <string>
#include <string_view>

namespace penstock {

struct url {
  std::string scheme;     ///< "s3", "http" or "https"
  std::string authority;  ///< host, and ":port" where one is given; of s3 the bucket
  std::string path;       ///< begins with '/'; as it was written
};

/// Refuses (errc::config) another scheme, no host, and http URLs with credentials, a query or a fragment: they would
/// appear in names of samples and in logs.
result<url> parse_url(std::string_view text);

/// Whether a request to `b` goes to the same server as one to `a`.
bool is_same_server(const url& a, const url& b);

/// Every byte but letters, digits and -._~ (and '/', if `keep_slashes`) as %XX: RFC 3986, as S3 signs it.
std::string percent_encoded(std::string_view text, bool keep_slashes);

/// Encodes what a URL's path may not contain; leaves '%' alone.
std::string path_as_sent(std::string_view path);

}  // namespace penstock
