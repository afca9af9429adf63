// What a job's function threw, as the bytes of its row's result: written by the worker, read by the session, which
// believes nothing. Three texts, each with its length before it (32 bits, little-endian), and nothing behind them. Pure.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace penstock::arena {

/// Why a row failed. Any bytes: who shows them to people makes them printable.
struct job_exception_text {
  static constexpr std::size_t type_bytes_max = 512;
  static constexpr std::size_t text_bytes_max = 16 * 1024;
  static constexpr std::size_t traceback_bytes_max = 64 * 1024;

  std::string type{};  ///< "std::runtime_error"
  std::string text{};
  std::string traceback{};  ///< empty: it brought none

  bool operator==(const job_exception_text&) const = default;
};

/// Longer texts are cut, the traceback in its middle, and so is what does not fit `room` bytes: the traceback first.
/// Empty if not even the lengths fit.
[[nodiscard]] std::vector<std::byte> as_bytes(const job_exception_text& from, std::size_t room);

/// Refuses (errc::protocol) bytes that as_bytes() does not write. No bytes are an error that found no room.
[[nodiscard]] result<job_exception_text> job_exception_from(std::span<const std::byte> bytes);

}  // namespace penstock::arena
