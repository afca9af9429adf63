// The key table in words, for the schema and the docs.
#pragma once

#include "runtime/config/key_table.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock::config_file {

/// The spellings that a choice may have here: gpu.dtype has fewer than the C++ type.
std::vector<std::string_view> choices_of(const key_info& key);

/// "whole number, between 1 and 1024, or \"auto\"".
std::string type_text(const key_info& key);

/// "only when dataset.type is \"raw\" or \"synthetic\""; empty if it always is.
std::string use_text(const key_info& key);

/// The help and when the key is used.
std::string description_of(const key_info& key);

}  // namespace penstock::config_file
