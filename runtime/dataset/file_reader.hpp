// Reads sample files: whole files into a reused buffer, or ranges. Error messages are one sentence without the file's
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
  /// The file's bytes, valid until the next call. Refuses what open_for_reading and read_exactly refuse, and a file
  /// that is larger than `bytes_max`.
  result<std::span<const std::byte>> read(const std::string& path, std::uint64_t bytes_max);
  /// Reads an open file, or an object, in the same way.
  result<std::span<const std::byte>> read(readable& file, std::uint64_t bytes_max);

 private:
  recycled_buffer buffer_;
};

struct open_file {
  unique_fd fd;
  std::uint64_t bytes = 0;  ///< size when it was opened
};

/// Follows links, and opens without blocking, so a FIFO cannot stall it. Refuses (errc::io, with errno if there is one)
/// anything but a regular file.
result<open_file> open_for_reading(const std::string& path);

/// Fills `into` from byte `at` of a file. Refuses (errc::io) a failed read, with errno, and a file that ends too early.
result<void> read_exactly(int fd, std::uint64_t at, std::span<std::byte> into);

/// What a dataset throws in load(): transient_error if is_transient, else error.
[[noreturn]] void throw_failed(failure why);

/// Whether a retry may succeed: EIO, ESTALE, EAGAIN, ETIMEDOUT and similar errors of network file systems; also a lack
/// of memory or descriptors, which the sample did not cause.
bool is_transient(int os_code) noexcept;

/// A file's time of modification in nanoseconds since 1970.
std::int64_t modified_ns_of(const struct ::stat& facts) noexcept;

/// "a folder", "a FIFO", ... for a mode that is not S_ISREG.
const char* kind_of_file(unsigned mode) noexcept;

}  // namespace penstock
