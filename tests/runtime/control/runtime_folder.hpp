// A private runtime folder for a test's sockets and records.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace penstock::testing {

/// Sets XDG_RUNTIME_DIR for its own lifetime.
class runtime_folder {
 public:
  runtime_folder() {
    std::string name = "/tmp/penstock-runtime-XXXXXX";
    path_ = ::mkdtemp(name.data());
    ::setenv("XDG_RUNTIME_DIR", path_.c_str(), 1);
  }
  ~runtime_folder() {
    ::unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(path_);
  }
  runtime_folder(const runtime_folder&) = delete;
  runtime_folder& operator=(const runtime_folder&) = delete;

 private:
  std::filesystem::path path_;
};

}  // namespace penstock::testing
