// AWS Signature Version 4, which an S3 server expects in each request. Pure; time is an argument.
// Used by the object store.
#pragma once

#include "runtime/storage/credentials.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

using http_header = std::pair<std::string, std::string>;

struct request_to_sign {
  std::string method = "GET";
  std::string path;                  ///< encoded, begins with '/'
  std::string query;                 ///< encoded and sorted: "a=1&b=2"
  std::vector<http_header> headers;  ///< all that are signed, names in lower case: at least host and x-amz-date
  std::string payload_sum;           ///< SHA-256 of the body, in hex
};

struct signing_scope {
  std::string region;
  std::string service = "s3";
};

/// The value of the Authorization header. `when` must be the time in x-amz-date.
std::string authorization_for(const request_to_sign& request, const s3_credentials& who, const signing_scope& scope,
                              std::chrono::sys_seconds when);

/// "20150830T123600Z"
std::string amz_date(std::chrono::sys_seconds when);

/// The headers that S3 needs for a GET without a body, except Host. `more`: other headers to sign, names in lower case.
std::vector<http_header> s3_headers(const std::string& host, const std::string& path, const std::string& query,
                                    const s3_credentials& who, const std::string& region,
                                    std::chrono::sys_seconds when, std::vector<http_header> more = {});

}  // namespace penstock
