// Parses the header of a .npy file (NumPy's format, versions 1 to 3) strictly: refuses anything unknown. Used by the
// listing of npy datasets and by tar datasets.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/storage/readable.hpp"

#include <penstock/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

struct npy_header {
  dtype element = dtype::uint8;
  std::vector<std::uint64_t> shape;  ///< the first axis counts samples
  std::uint64_t data_at = 0;         ///< where the elements begin in the file

  /// Bytes of one sample: all axes but the first.
  [[nodiscard]] std::uint64_t record_bytes() const noexcept;
};

/// How much of a file parse_npy_header needs. Headers are far smaller; longer ones are refused.
inline constexpr std::size_t npy_header_max = 64 * 1024;

/// A header with a larger sample is taken to be corrupt.
inline constexpr std::uint64_t record_bytes_max = std::uint64_t{1} << 40U;

/// `start`: the first min(file_size, npy_header_max) bytes. Refuses with errc::dataset and one sentence without the
/// file's name. Accepts only a header of version 1 - 3 with descr, fortran_order and shape once each. Refuses Fortran
/// order; big-endian, object, structured, string, date and complex types; an array without a first axis or with an
/// empty sample; samples larger than 2^40 bytes; and a file whose length does not match its header. Reads bool as uint8
/// and <u2 as uint16 (penstock writes bfloat16 as <u2).
result<npy_header> parse_npy_header(std::span<const std::byte> start, std::uint64_t file_size);

/// Reads and parses the header of a file, usually with one short read. Also refuses what the file's read() refuses.
result<npy_header> read_npy_header(readable& file);

/// Like parse_npy_header, but the whole array is one sample: no axis counts samples, an array without axes is allowed,
/// and no axis may be empty.
result<npy_header> parse_npy_array(std::span<const std::byte> start, std::uint64_t file_size);

}  // namespace penstock
