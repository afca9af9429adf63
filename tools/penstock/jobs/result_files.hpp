// The files of `penstock map --results DIR`: DIR/INDEX.stdout and DIR/INDEX.stderr for a command,
// DIR/INDEX.result for a function; complete and byte for byte.
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
  /// Creates the folder if it is missing. Refuses (errc::io) a folder that another run is writing to.
  static result<std::unique_ptr<result_files>> open(const std::string& folder);

  /// An absolute path without the suffix.
  [[nodiscard]] std::string path_of(std::uint64_t index) const;
  /// Writes a function's result: first under another name, so that an incomplete file never has the final
  /// name. Thread-safe.
  result<void> write(std::uint64_t index, std::span<const std::byte> bytes) const;

 private:
  result_files(std::string folder, unique_fd lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}

  const std::string folder_;  // absolute: workers write there
  const unique_fd lock_;
};

}  // namespace penstock::cli
