// Finds programs in PATH, as a shell does.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>

namespace penstock::process {

[[nodiscard]] inline bool is_executable_file(const std::string& file) {
  struct stat facts {};
  return ::stat(file.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && ::access(file.c_str(), X_OK) == 0;
}

/// The program in the first folder of `path` that has it. An empty folder means the working directory. `name` has no
/// slash.
[[nodiscard]] inline std::optional<std::string> found_in_path(std::string_view path, const std::string& name) {
  while (true) {
    const std::size_t end = path.find(':');
    const std::string_view folder = path.substr(0, end);
    std::string file = (folder.empty() ? "." : std::string(folder)) + "/" + name;
    if (is_executable_file(file)) return file;
    if (end == std::string_view::npos) return std::nullopt;
    path.remove_prefix(end + 1);
  }
}

}  // namespace penstock::process
