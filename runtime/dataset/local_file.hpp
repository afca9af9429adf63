// A local file that must not change after it was opened or listed. Used by the datasets.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/storage/readable.hpp"

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>

namespace penstock {

/// What to compare with the listing: size and time at each read, only the size when the file is opened, or nothing.
enum class file_check : std::uint8_t { size_and_time, size_when_opened, none };

/// Opens the file at the first read, and again after an error: ESTALE needs a new descriptor.
class local_file final : public readable {
 public:
  /// `bytes` and, for size_and_time, `modified_ns`: the file's size and time of modification when it was listed.
  local_file(std::string path, std::uint64_t bytes, std::int64_t modified_ns, file_check check = file_check::size_and_time)
      : path_(std::move(path)), bytes_(bytes), modified_ns_(modified_ns), check_(check) {}
  /// Opens a file as it is now. Refuses a file that cannot be opened (errc::io) or is not a regular file
  /// (errc::dataset).
  static result<std::unique_ptr<local_file>> open(const std::string& path);

  [[nodiscard]] std::uint64_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] std::int64_t modified_ns() const noexcept { return modified_ns_; }
  result<void> read(std::uint64_t at, std::span<std::byte> into) override;
  /// Refuses (errc::io) a file that cannot be opened or examined, or whose size or time of modification has changed.
  result<void> check_unchanged();

 private:
  [[nodiscard]] bool is_as_listed(const struct ::stat& facts) const noexcept;

  std::string path_;
  std::uint64_t bytes_;
  std::int64_t modified_ns_;
  file_check check_;
  unique_fd fd_;
};

}  // namespace penstock
