#include "tools/penstock-probe/driver_library.hpp"

#include "tools/penstock-probe/probes.hpp"

#include <dlfcn.h>
#include <link.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

namespace penstock::probe {
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

/// The file behind links: its name ends with the driver's version.
std::string real_path(const std::string& path) {
  std::error_code fault;
  const auto real = fs::canonical(path, fault);
  return fault ? path : real.string();
}

}  // namespace

driver_library::driver_library(const std::string& name, const std::string& root) {
  begin_step(("loading " + name).c_str());
  const bool elsewhere = root != "/";
  const std::string file = elsewhere ? path_below(name, root) : name;
  if (file.empty()) {
    tell({{"load_error", name + " was not found below " + root}});
    return;
  }
  handle_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* why = ::dlerror();
    tell({{"load_error", why != nullptr ? why : "it cannot be loaded"}});
    return;
  }
  link_map* loaded = nullptr;
  if (::dlinfo(handle_, RTLD_DI_LINKMAP, &loaded) == 0 && loaded != nullptr)
    tell({{"path", real_path(loaded->l_name)}});
}

void* driver_library::symbol(const char* name) const {
  return handle_ != nullptr ? ::dlsym(handle_, name) : nullptr;
}

}  // namespace penstock::probe
