// As much of a JSON Schema validator as penstock's schema needs, so that the tests depend on no Python
// package.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace penstock::config_file::testing {

/// Empty: the value fits. Else where it does not and why. Throws on a keyword that it does not know, lest a
/// new one be taken for satisfied.
std::string schema_mismatch(const nlohmann::json& schema, const nlohmann::json& value,
                            const std::string& at = "");

}  // namespace penstock::config_file::testing
