// ${env:NAME}, ${env:NAME:-default}, ${cfg:dir}, ${var:NAME} and $$ in the strings of a config. Pure: the
// environment and the variables are arguments.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::config_file {

/// The values of all references. Owns its data.
struct reference_values {
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> variables;  ///< entries of [vars], already resolved
  /// Variables whose own value is wrong. References to them are follow-up errors and are not reported.
  std::set<std::string> broken_variables;
  /// False: a file could not be parsed, so a missing variable may have been set there.
  bool all_variables_known = true;
};

/// What a string may refer to, depending on its place.
enum class reference_scope : unsigned char {
  everything,
  no_variables,  ///< the values of [vars] and of `include`, which are read before [vars] is known
};

struct reference_error {
  std::size_t begin = 0;  ///< within the string's value
  std::size_t end = 0;
  std::string message;
  std::string label;
  std::string help;
  bool unset = false;  ///< the string is well formed, and only a value is missing
};

struct expansion {
  std::string text;
  bool sound = true;  ///< false: do not use `text`, even if there are no errors to report
  std::vector<reference_error> errors;
};

/// Values from the environment and from variables are not expanded again.
expansion expand(std::string_view text, const reference_values& values, const std::filesystem::path& folder,
                 reference_scope scope);

/// The text that expand() turns into `text`.
std::string escaped_references(std::string_view text);

}  // namespace penstock::config_file
