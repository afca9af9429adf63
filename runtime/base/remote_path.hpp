// Which paths name objects on a server, not files. Used by the config, the datasets and runtime/storage.
#pragma once

#include <string_view>

namespace penstock {

/// Whether the path begins with s3://, http:// or https://.
constexpr bool is_url(std::string_view path) noexcept {
  return path.starts_with("s3://") || path.starts_with("http://") || path.starts_with("https://");
}

}  // namespace penstock
