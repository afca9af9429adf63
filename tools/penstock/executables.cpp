#include "tools/penstock/executables.hpp"

#include "runtime/base/text.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace penstock::cli {
namespace {

bool is_executable(const std::string& file) {
  std::error_code unknown;
  return ::access(file.c_str(), X_OK) == 0 && !std::filesystem::is_directory(file, unknown);
}

std::string why_not_executable(const std::string& file) {
  std::error_code unknown;
  if (std::filesystem::is_directory(file, unknown)) return "is a folder, not a program";
  if (::access(file.c_str(), F_OK) == 0) return "is not an executable program: `chmod +x` makes it one";
  return errno == ENOENT || errno == ENOTDIR ? "does not exist" : os_failure(errc::system, errno, "cannot be found").message;
}

}  // namespace

std::string own_program() {
  std::error_code gone;
  const auto file = std::filesystem::read_symlink("/proc/self/exe", gone);
  return !gone && ::access(file.c_str(), X_OK) == 0 ? file.string() : "/proc/self/exe";
}

std::string path_of_environment() {
  const char* path = std::getenv("PATH");
  return path != nullptr ? path : "/bin:/usr/bin";
}

result<std::string> executable_in(std::string_view path, const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (is_executable(name)) return name;
    return refuse(errc::usage, "'{}' {}", printable(name), why_not_executable(name));
  }
  while (true) {
    const std::size_t end = path.find(':');
    const std::string_view folder = path.substr(0, end);
    const std::string file = (folder.empty() ? "." : std::string(folder)) + "/" + name;
    if (is_executable(file)) return file;
    if (end == std::string_view::npos) break;
    path.remove_prefix(end + 1);
  }
  return refuse(errc::usage, "there is no program '{}' in PATH", printable(name));
}

}  // namespace penstock::cli
