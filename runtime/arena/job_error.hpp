// The error of a job's function, encoded as the result of its row: written by the worker and read by the
// session, which does not trust it. Three strings, each preceded by its length (32 bits, little-endian), and
// nothing after them. Pure.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace penstock::arena {

/// Why a row failed. May contain any bytes: make them printable before showing them.
struct job_exception_text {
  // Encoded: 512 + 16 KiB + 64 KiB + three lengths of 4 bytes, so at most 81 KiB.
  static constexpr std::size_t type_bytes_max = 512;
  static constexpr std::size_t text_bytes_max = 16 * 1024;
  static constexpr std::size_t traceback_bytes_max = 64 * 1024;

  std::string type{};  ///< "std::runtime_error"
  std::string text{};
  std::string traceback{};  ///< empty: none

  bool operator==(const job_exception_text&) const = default;
};

/// Cuts texts that are too long (the traceback in its middle). If the whole exceeds `room` bytes, cuts
/// further, the traceback first. Empty if not even the lengths fit.
[[nodiscard]] std::vector<std::byte> as_bytes(const job_exception_text& from, std::size_t room);

/// Refuses (errc::protocol) bytes that as_bytes() cannot have
/// written. Empty input means that there was no room for the error.
[[nodiscard]] result<job_exception_text> job_exception_from(std::span<const std::byte> bytes);

}  // namespace penstock::arena
