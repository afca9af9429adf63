// What toml++ says about a text that is not TOML, in our words and with the mistakes that people make most -
// a string without quotes, a string that is never closed - called by their names. Pure.
#pragma once

#include "runtime/config/source.hpp"

#include <string_view>

namespace penstock::config_file {

/// `offset`: where toml++ stopped in `text`; `description`: its sentence, "Error while parsing WHERE: WHAT".
complaint syntax_error(const source& text, std::size_t offset, std::string_view description);

}  // namespace penstock::config_file
