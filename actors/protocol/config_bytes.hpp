// The exact effective config as bytes for a worker. It is not sent as text, because paths need not be UTF-8
// and doubles must keep their bits. The fields come from the key table; hello ensures that both ends have the
// same version.
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
