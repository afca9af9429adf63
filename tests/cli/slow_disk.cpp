// For LD_PRELOAD: reads from regular files below a folder take longer, or fail, as those from a bad disk or file server. Used by
// why_test.py and failing_disk_test.py.
// PENSTOCK_SLOW_DISK = MICROSECONDS:FOLDER
// PENSTOCK_FAILING_DISK = ERRNO:N:FOLDER    every Nth read of this process fails
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

struct settings {
  std::chrono::microseconds delay{0};
  std::string slow_folder;
  int error = 0;
  unsigned long fails_every = 0;
  std::string failing_folder;
};

/// Parses the number before the next colon of `text` and removes both.
long take_number(const char*& text) {
  char* rest = nullptr;
  const long number = std::strtol(text, &rest, 10);
  text = *rest == ':' ? rest + 1 : rest;
  return number;
}

const settings& ours() {
  static const settings read = [] {
    settings s;
    if (const char* text = std::getenv("PENSTOCK_SLOW_DISK"); text != nullptr) {
      s.delay = std::chrono::microseconds(take_number(text));
      s.slow_folder = text;
    }
    if (const char* text = std::getenv("PENSTOCK_FAILING_DISK"); text != nullptr) {
      s.error = static_cast<int>(take_number(text));
      s.fails_every = static_cast<unsigned long>(take_number(text));
      s.failing_folder = text;
    }
    return s;
  }();
  return read;
}

bool is_below(int fd, const std::string& folder) {
  if (folder.empty()) return false;
  struct stat facts {};
  if (::fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  char path[4096];
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return length > 0 && std::string(path, static_cast<std::size_t>(length)).starts_with(folder);
}

/// Waits, or sets errno and returns false.
bool disk_answers(int fd) {
  if (is_below(fd, ours().slow_folder)) std::this_thread::sleep_for(ours().delay);
  static std::atomic<unsigned long> reads{0};
  if (ours().fails_every == 0 || !is_below(fd, ours().failing_folder) || ++reads % ours().fails_every != 0) return true;
  errno = ours().error;
  return false;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) ssize_t read(int fd, void* to, size_t bytes) {
  static const auto real = next<ssize_t (*)(int, void*, size_t)>("read");
  return disk_answers(fd) ? real(fd, to, bytes) : -1;
}

__attribute__((visibility("default"))) ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  static const auto real = next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return disk_answers(fd) ? real(fd, to, bytes, at) : -1;
}

__attribute__((visibility("default"))) ssize_t pread64(int fd, void* to, size_t bytes, off64_t at) {
  static const auto real = next<ssize_t (*)(int, void*, size_t, off64_t)>("pread64");
  return disk_answers(fd) ? real(fd, to, bytes, at) : -1;
}

}  // extern "C"
