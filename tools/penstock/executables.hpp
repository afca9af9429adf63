// Finds programs as a shell does, and the path of this program. Used by verbs that start programs.
#pragma once

#include "runtime/base/result.hpp"

#include <string>
#include <string_view>

namespace penstock::cli {

/// This program's path rather than /proc/self/exe, which ps would show as "exe"; the latter only if the file was replaced.
[[nodiscard]] std::string own_program();

/// $PATH, or "/bin:/usr/bin" if it is not set.
[[nodiscard]] std::string path_of_environment();

/// The path of a program: a plain name is looked up in the directories of `path`, where an empty one means
/// the working directory; a name with a slash stays unchanged. Refuses (errc::usage) a file that is missing
/// or not executable.
[[nodiscard]] result<std::string> executable_in(std::string_view path, const std::string& name);

}  // namespace penstock::cli
