#include "runtime/base/shared_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <utility>

namespace penstock {
namespace {

/// Sanitizers do not support RTLD_DEEPBIND, which prefers the library's own symbols.
int flags_for(shared_library::symbols which) {
  constexpr int usual = RTLD_NOW | RTLD_LOCAL;
  const bool sanitized =
      ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr || ::dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
  return which == shared_library::symbols::own_first && !sanitized ? usual | RTLD_DEEPBIND : usual;
}

}  // namespace

shared_library::shared_library(const std::string& file, symbols which)
    : handle_(::dlopen(file.c_str(), flags_for(which))) {
  if (handle_ != nullptr) return;
  const char* why = ::dlerror();
  trouble_ = why != nullptr ? why : file + " cannot be loaded";
}

shared_library shared_library::missing(std::string trouble) {
  shared_library none;
  none.trouble_ = std::move(trouble);
  return none;
}

std::string shared_library::path() const {
  link_map* loaded = nullptr;
  if (handle_ == nullptr || ::dlinfo(handle_, RTLD_DI_LINKMAP, &loaded) != 0 || loaded == nullptr) return {};
  std::error_code fault;
  const auto real = std::filesystem::canonical(loaded->l_name, fault);
  return fault ? loaded->l_name : real.string();
}

void* shared_library::symbol(const char* name) const {
  return handle_ != nullptr ? ::dlsym(handle_, name) : nullptr;
}

}  // namespace penstock
