// The names that users of other loaders type, and what they mean here: consulted when a key or a choice is
// unknown, before the nearest name is looked for.
#pragma once

#include <span>
#include <string_view>

namespace penstock::config_file {

struct foreign_name {
  std::string_view name;  ///< in lower case, with '_'
  std::string_view
      key;  ///< path of the key that does the same here; empty: there is none, and `note` says why
  std::string_view note;  ///< a sentence for the help line; may be empty
};

std::span<const foreign_name> foreign_names();

/// Null: nothing is known of it. Case and '-' for '_' do not matter.
const foreign_name* foreign_key(std::string_view name);

/// The dtype that "fp16", "half" or "long" means; empty: nothing is known of it.
std::string_view foreign_dtype(std::string_view name);

}  // namespace penstock::config_file
