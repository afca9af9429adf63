// For LD_PRELOAD: every read from a regular file below a folder takes longer, as from a slow disk. Used by why_test.py.
// PENSTOCK_SLOW_DISK = MICROSECONDS:FOLDER
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

struct settings {
  std::chrono::microseconds delay{0};
  std::string folder;
};

const settings& ours() {
  static const settings read = [] {
    settings s;
    const char* const text = std::getenv("PENSTOCK_SLOW_DISK");
    if (text == nullptr) return s;
    char* rest = nullptr;
    s.delay = std::chrono::microseconds(std::strtol(text, &rest, 10));
    s.folder = *rest == ':' ? rest + 1 : rest;
    return s;
  }();
  return read;
}

void wait_for_disk(int fd) {
  if (ours().folder.empty()) return;
  struct stat facts {};
  if (::fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) return;
  char path[4096];
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  if (length <= 0 || !std::string(path, static_cast<std::size_t>(length)).starts_with(ours().folder)) return;
  std::this_thread::sleep_for(ours().delay);
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) ssize_t read(int fd, void* to, size_t bytes) {
  static const auto real = next<ssize_t (*)(int, void*, size_t)>("read");
  wait_for_disk(fd);
  return real(fd, to, bytes);
}

__attribute__((visibility("default"))) ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  static const auto real = next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  wait_for_disk(fd);
  return real(fd, to, bytes, at);
}

__attribute__((visibility("default"))) ssize_t pread64(int fd, void* to, size_t bytes, off64_t at) {
  static const auto real = next<ssize_t (*)(int, void*, size_t, off64_t)>("pread64");
  wait_for_disk(fd);
  return real(fd, to, bytes, at);
}

}  // extern "C"
