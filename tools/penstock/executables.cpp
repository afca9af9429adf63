#include "tools/penstock/executables.hpp"

#include "runtime/base/text.hpp"
#include "runtime/process/path_lookup.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace penstock::cli {
namespace {

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
    if (process::is_executable_file(name)) return name;
    return refuse(errc::usage, "'{}' {}", printable(name), why_not_executable(name));
  }
  if (auto file = process::found_in_path(path, name)) return std::move(*file);
  return refuse(errc::usage, "there is no program '{}' in PATH", printable(name));
}

}  // namespace penstock::cli
