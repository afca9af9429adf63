// Rewords toml++'s syntax errors and recognises the most common mistakes: a string without quotes, a string
// that is never closed. Pure.
#pragma once

#include "runtime/config/source.hpp"

#include <string_view>

namespace penstock::config_file {

/// `offset`: where toml++ stopped in `text`; `description`: its sentence, "Error while parsing WHERE: WHAT".
complaint syntax_error(const source& text, std::size_t offset, std::string_view description);

}  // namespace penstock::config_file
