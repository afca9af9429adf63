// Parses paths that are URLs: s3://, http:// and https://. Pure. Used wherever [dataset] path may be a URL.
#pragma once

#include "runtime/base/remote_path.hpp"
#include "runtime/base/result.hpp"

#include <string>
#include <string_view>

namespace penstock {

struct url {
  std::string scheme;     ///< "s3", "http" or "https"
  std::string authority;  ///< host, with ":port" if the URL has one; for s3 the bucket
  std::string path;       ///< begins with '/', not decoded
};

/// Refuses (errc::config) another scheme, a missing host, and http URLs with credentials, a query or a fragment,
/// because these would appear in names of samples and in logs.
result<url> parse_url(std::string_view text);

/// Whether a request to `b` goes to the same server as one to `a`.
bool is_same_server(const url& a, const url& b);

/// Encodes every byte except letters, digits and -._~ (and '/', if `keep_slashes`) as %XX (RFC 3986), as
/// S3's signatures require.
std::string percent_encoded(std::string_view text, bool keep_slashes);

/// Encodes characters that a URL's path must not contain; does not change '%'.
std::string path_as_sent(std::string_view path);

}  // namespace penstock
