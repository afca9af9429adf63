#include "runtime/device/driver_library.hpp"

#include <dlfcn.h>
#include <link.h>

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

std::string path_below(const std::string& name, const fs::path& root) {
  std::error_code ignored;
  for (const fs::path& folder : folders_below(root))
    if (fs::exists(folder / name, ignored)) return folder / name;
  return {};
}

}  // namespace

driver_library::driver_library(const std::string& name, const std::string& root) {
  const std::string file = root == "/" ? name : path_below(name, root);
  if (file.empty()) {
    trouble_ = name + " was not found below " + root;
    return;
  }
  handle_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ != nullptr) return;
  const char* why = ::dlerror();
  trouble_ = why != nullptr ? why : "it cannot be loaded";
}

std::string driver_library::path() const {
  link_map* loaded = nullptr;
  if (handle_ == nullptr || ::dlinfo(handle_, RTLD_DI_LINKMAP, &loaded) != 0 || loaded == nullptr) return {};
  std::error_code fault;
  const auto real = fs::canonical(loaded->l_name, fault);
  return fault ? loaded->l_name : real.string();
}

void* driver_library::symbol(const char* name) const {
  return handle_ != nullptr ? ::dlsym(handle_, name) : nullptr;
}

}  // namespace penstock::device
