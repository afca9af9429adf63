// Reads a whole file into a reused buffer. Used by the image-folder dataset.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/recycled_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace penstock {

class file_reader {
 public:
  /// The file's bytes, valid until the next call. Follows links and opens without blocking: a FIFO never
  /// holds it up. Refuses (errc::io, with errno where there is one) a file that is missing, may not be read,
  /// is not a regular file, is larger than `bytes_max`, or ends before the size that it had when it was
  /// opened. See is_transient for the errno.
  result<std::span<const std::byte>> read(const std::string& path, std::uint64_t bytes_max);

 private:
  recycled_buffer buffer_;
};

/// Whether a retry may succeed: EIO, ESTALE, EAGAIN, ETIMEDOUT and similar errors of network file systems;
/// also a lack of memory or descriptors, which is not the sample's fault.
bool is_transient(int os_code) noexcept;

/// "a folder", "a FIFO", ... for a mode that is not S_ISREG.
const char* kind_of_file(unsigned mode) noexcept;

}  // namespace penstock
