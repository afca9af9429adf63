// Names used by other data loaders and their equivalents here. They
// are looked up for an unknown key or choice, before the nearest name.
#pragma once

#include <span>
#include <string_view>

namespace penstock::config_file {

struct foreign_name {
  std::string_view names;  ///< in lower case, with '_', separated by blanks
  std::string_view key;    ///< path of our key that does the same; empty if we have none, see `note`
  std::string_view note;   ///< a sentence for the help line; may be empty
};

std::span<const foreign_name> foreign_names();

/// Null if the name is unknown. Case does not matter, nor does '-' instead of '_'.
const foreign_name* foreign_key(std::string_view name);

/// The dtype that "fp16", "half" or "long" means; empty if unknown.
std::string_view foreign_dtype(std::string_view name);

/// Translates the booleans of Python, YAML and shells ("True",
/// "yes", "on", "1") to "true" or "false". Empty for other words.
std::string_view foreign_boolean(std::string_view word);

/// Whether the word stands for "no value" elsewhere: "None", "null", "nil".
bool is_foreign_null(std::string_view word);

}  // namespace penstock::config_file
