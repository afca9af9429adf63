// The subset of a JSON Schema validator that penstock's schema needs, so that the tests do not depend on a
// Python package.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace penstock::config_file::testing {

/// Empty if the value matches; otherwise where it does not, and why. Throws on an unknown keyword, which must not count as satisfied.
std::string schema_mismatch(const nlohmann::json& schema, const nlohmann::json& value,
                            const std::string& at = "");

}  // namespace penstock::config_file::testing
