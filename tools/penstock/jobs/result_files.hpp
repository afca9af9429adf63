// The files of `penstock map --results DIR`: DIR/INDEX.stdout and DIR/INDEX.stderr of a command, DIR/INDEX.result of a
// function, byte for byte and whole.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace penstock::cli {

class result_files {
 public:
  /// Makes the folder if there is none. Refuses (errc::io) one that another run is writing to.
  static result<std::unique_ptr<result_files>> open(const std::string& folder);

  /// An absolute path without the ending.
  [[nodiscard]] std::string path_of(std::uint64_t index) const;
  /// Writes the result of a function: under another name first, so that no half of it is ever there. Thread-safe.
  result<void> write(std::uint64_t index, std::span<const std::byte> bytes) const;

 private:
  result_files(std::string folder, unique_fd lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}

  const std::string folder_;  // absolute: workers write there
  const unique_fd lock_;
};

}  // namespace penstock::cli
