// Looks programs up as a shell does. Used by verbs that start a program of the user's.
#pragma once

#include "runtime/base/result.hpp"

#include <string>
#include <string_view>

namespace penstock::cli {

/// $PATH; "/bin:/usr/bin" if it is not set.
[[nodiscard]] std::string path_of_environment();

/// The file of a program: a plain name in the folders of `path`, whose empty ones mean the working folder; a name with a
/// slash unchanged. Refuses (errc::usage) what is not there or not executable.
[[nodiscard]] result<std::string> executable_in(std::string_view path, const std::string& name);

}  // namespace penstock::cli
