// The effective config as bytes for a worker, exactly: paths need not be UTF-8 and doubles keep their bits,
// so it is not sent as text. The fields come from the key table; both ends have the same version (hello).
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/config.hpp>

#include <string>
#include <string_view>

namespace penstock::protocol {

[[nodiscard]] std::string config_as_bytes(const config& settings);

/// Refuses (errc::protocol) bytes that are not exactly one config.
result<config> config_from_bytes(std::string_view bytes);

}  // namespace penstock::protocol
