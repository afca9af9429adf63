// A local file that must stay as it was when it was opened, or listed. Used by the datasets.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/storage/readable.hpp"

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>

namespace penstock {

/// What of a file must be as it was when it was listed: at each read, when it is opened, never.
enum class file_check : std::uint8_t { size_and_time, size_when_opened, none };

/// Opens at the first read, and again after an error: after ESTALE a new descriptor is needed.
class local_file final : public readable {
 public:
  /// A file that had this size, and for size_and_time this time of modification, when it was listed.
  local_file(std::string path, std::uint64_t bytes, std::int64_t modified_ns, file_check check = file_check::size_and_time)
      : path_(std::move(path)), bytes_(bytes), modified_ns_(modified_ns), check_(check) {}
  /// As it is now. Refuses (errc::io) what cannot be opened, (errc::dataset) what is not a regular file.
  static result<std::unique_ptr<local_file>> open(const std::string& path);

  [[nodiscard]] std::uint64_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] std::int64_t modified_ns() const noexcept { return modified_ns_; }
  result<void> read(std::uint64_t at, std::span<std::byte> into) override;
  /// Refuses (errc::io) a file that cannot be opened or examined, or has another size or time of modification.
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
