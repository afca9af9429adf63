// ${env:NAME}, ${env:NAME:-default}, ${cfg:dir}, ${var:NAME} and $$ in the strings of a config. Pure: the
// environment and the variables come in.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::config_file {

/// What references can stand for. Borrows nothing.
struct reference_values {
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> variables;  ///< [vars], themselves resolved
  /// Variables whose own value is wrong: a reference to one of them is a follow-up and not worth a complaint.
  std::set<std::string> broken_variables;
  /// False: a file could not be parsed, so a missing variable proves nothing.
  bool all_variables_known = true;
};

/// Where a string stands decides what it may refer to.
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
  bool unset = false;  ///< only a value is missing; the string itself is well formed
};

struct expansion {
  std::string text;
  bool sound = true;  ///< false: `text` is not to be used, whether or not there are errors to report
  std::vector<reference_error> errors;
};

/// What comes out of the environment or a variable is not looked at again.
expansion expand(std::string_view text, const reference_values& values, const std::filesystem::path& folder,
                 reference_scope scope);

/// The text that expand() turns into `text`.
std::string escaped_references(std::string_view text);

}  // namespace penstock::config_file
