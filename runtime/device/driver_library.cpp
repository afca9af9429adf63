#include "runtime/device/driver_library.hpp"

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

namespace penstock::device {
namespace {

namespace fs = std::filesystem;

// Where distributions and container runtimes put the driver's libraries.
constexpr const char* library_folders[] = {"usr/local/nvidia/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib64",
                                           "usr/lib/wsl/lib", "usr/lib"};

std::vector<fs::path> folders_below(const fs::path& root) {
  std::vector<fs::path> folders;
  if (const char* path = std::getenv("LD_LIBRARY_PATH")) {
    std::istringstream entries(path);
    for (std::string entry; std::getline(entries, entry, ':');)
      if (!entry.empty()) folders.push_back(root / fs::path(entry).relative_path());
  }
  for (const char* folder : library_folders) folders.push_back(root / folder);
  return folders;
}

shared_library opened_below(const std::string& name, const std::string& root) {
  std::error_code ignored;
  for (const fs::path& folder : folders_below(root))
    if (fs::exists(folder / name, ignored)) return shared_library(folder / name);
  return shared_library::missing(name + " was not found below " + root);
}

}  // namespace

driver_library::driver_library(const std::string& name, const std::string& root)
    : shared_library(root == "/" ? shared_library(name) : opened_below(name, root)) {}

}  // namespace penstock::device
