// The key table in words, for the schema and the docs.
#pragma once

#include "runtime/config/key_table.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock::config_file {

/// The allowed spellings of a choice. They can be fewer than the C++ type has, as for gpu.dtype.
std::vector<std::string_view> choices_of(const key_info& key);

/// "whole number, between 1 and 1024, or \"auto\"".
std::string type_text(const key_info& key);

/// "only when dataset.type is \"raw\" or \"synthetic\""; empty if the key is always used.
std::string use_text(const key_info& key);

/// The help text, and when the key is used.
std::string description_of(const key_info& key);

}  // namespace penstock::config_file
