// The header of a .npy file (NumPy's format, versions 1 to 3), parsed strictly: anything unknown is refused.
// Used by the listing of npy datasets and by tar datasets.
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

/// A header that names a larger sample is wrong.
inline constexpr std::uint64_t record_bytes_max = std::uint64_t{1} << 40U;

/// `start`: the first min(file_size, npy_header_max) bytes. Refuses (errc::dataset, one sentence without the
/// file's name) anything but a version 1 - 3 header with descr, fortran_order and shape once each; Fortran
/// order; big-endian, object, structured, string, date and complex types; an array without a first axis or
/// with an empty sample; sizes beyond 2^40 bytes a sample; and a file whose length does not match its header.
/// Reads bool as uint8 and <u2 as uint16 (penstock writes bfloat16 as <u2).
result<npy_header> parse_npy_header(std::span<const std::byte> start, std::uint64_t file_size);

/// Reads the header of a whole file, mostly with one short read, and parses it. Refuses also what the file refuses.
result<npy_header> read_npy_header(readable& file);

/// As parse_npy_header for an array that is one sample as a whole: no axis counts samples, a single number is one of no axes,
/// and no axis may be empty.
result<npy_header> parse_npy_array(std::span<const std::byte> start, std::uint64_t file_size);

}  // namespace penstock
