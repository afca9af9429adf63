// For LD_PRELOAD: regular files below a folder take longer to read or open, or their reads fail, as with a bad disk or file server. Used by
// why_test.py, failing_disk_test.py and tools/bench/shards.py.
// PENSTOCK_SLOW_DISK = MICROSECONDS:FOLDER   each read
// PENSTOCK_SLOW_OPEN = MICROSECONDS:FOLDER   each open
// PENSTOCK_FAILING_DISK = ERRNO:N:FOLDER    every Nth read of this process fails
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

struct settings {
  std::chrono::microseconds delay{0};
  std::string slow_folder;
  std::chrono::microseconds open_delay{0};
  std::string slow_open_folder;
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
    if (const char* text = std::getenv("PENSTOCK_SLOW_OPEN"); text != nullptr) {
      s.open_delay = std::chrono::microseconds(take_number(text));
      s.slow_open_folder = text;
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

/// Returns the open file after the delay.
int opened_late(int fd) {
  if (fd >= 0 && is_below(fd, ours().slow_open_folder)) std::this_thread::sleep_for(ours().open_delay);
  return fd;
}

/// The third argument of an open that may create the file.
mode_t mode_of(int flags, std::va_list arguments) {
  const bool may_create = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return may_create ? va_arg(arguments, mode_t) : 0;
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

__attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  static const auto real = next<int (*)(const char*, int, mode_t)>("open");
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return opened_late(real(path, flags, mode));
}

__attribute__((visibility("default"))) int openat(int folder, const char* path, int flags, ...) {
  static const auto real = next<int (*)(int, const char*, int, mode_t)>("openat");
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return opened_late(real(folder, path, flags, mode));
}

}  // extern "C"
