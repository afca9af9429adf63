// The keys that sign requests to S3, and the address of its server. They come from the environment and from the files
// of AWS's own tools. The parsing is pure. Used by the object store.
#pragma once

#include "runtime/base/result.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

struct s3_credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  ///< set only for temporary credentials

  bool operator==(const s3_credentials&) const = default;
};

struct s3_settings {
  std::optional<s3_credentials> who;  ///< empty: requests are not signed, which public buckets allow
  std::string region;
  std::string endpoint;  ///< "http://127.0.0.1:9000"; empty: Amazon's
};

/// The value of an environment variable, or a null pointer.
using environment_lookup = std::function<const char*(const char*)>;

/// Variables come first: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION,
/// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL. Then the profile AWS_PROFILE, or "default", of the two files. The texts are
/// those of ~/.aws/credentials and ~/.aws/config; empty if there is no such file. Refuses (errc::config) an
/// access key without its secret or the reverse, a named profile that does not exist, and a profile that gets
/// its keys from a program or a role.
result<s3_settings> s3_settings_from(const environment_lookup& variable, std::string_view credentials_text,
                                     std::string_view config_text);

/// Reads this process's environment and the user's files (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE). Also
/// refuses (errc::config) credentials if OpenSSL, which is needed to sign, is missing.
result<s3_settings> read_s3_settings();

}  // namespace penstock
