// Reads files with samples: whole ones into a reused buffer, or ranges. Failures are one sentence without the file's
// name ("cannot be opened: ..."). Used by the datasets.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/recycled_buffer.hpp"
#include "runtime/storage/readable.hpp"

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace penstock {

class file_reader {
 public:
  /// The file's bytes, valid until the next call. Refuses as open_for_reading and read_exactly do, and a file
  /// that is larger than `bytes_max`.
  result<std::span<const std::byte>> read(const std::string& path, std::uint64_t bytes_max);
  /// The same for an open file, or an object.
  result<std::span<const std::byte>> read(readable& file, std::uint64_t bytes_max);

 private:
  recycled_buffer buffer_;
};

struct open_file {
  unique_fd fd;
  std::uint64_t bytes = 0;  ///< its size when it was opened
};

/// Follows links, and opens without blocking: a FIFO never holds it up. Refuses (errc::io) what is not a regular
/// file, with errno where there is one.
result<open_file> open_for_reading(const std::string& path);

/// The same for a file that was listed with `bytes`. Refuses (errc::io) one that has another size now.
result<unique_fd> open_listed(const std::string& path, std::uint64_t bytes);

/// Fills `into` from byte `at` of a file. Refuses (errc::io) a read that fails, with errno, and the end of the
/// file.
result<void> read_exactly(int fd, std::uint64_t at, std::span<std::byte> into);

/// What a dataset throws in load(): transient_error if is_transient, else error.
[[noreturn]] void throw_failed(failure why);

/// Whether a retry may succeed: EIO, ESTALE, EAGAIN, ETIMEDOUT and similar errors of network file systems;
/// also a lack of memory or descriptors, which is not the sample's fault.
bool is_transient(int os_code) noexcept;

/// A file's time of modification in nanoseconds since 1970.
std::int64_t modified_ns_of(const struct ::stat& facts) noexcept;

/// "a folder", "a FIFO", ... for a mode that is not S_ISREG.
const char* kind_of_file(unsigned mode) noexcept;

}  // namespace penstock
