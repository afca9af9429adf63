// Rewrites a JPEG with restart markers, without loss: encodes its coefficients again and keeps its pixels. Used by `penstock pack`.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace penstock {

/// The number of MCUs between two markers: divides a row of MCUs evenly, and covers at most 32 pixels unless one MCU is
/// wider. Both arguments are at least 1.
std::uint32_t restart_interval_for(std::uint32_t mcus_in_row, std::uint32_t mcu_width) noexcept;

struct transcoded_jpeg {
  std::string file;
  bool was_progressive = false;
};

/// Writes a sequential JPEG in one scan, with optimised tables, all metadata segments, and markers at the distance of
/// restart_interval_for(). The same file and library give the same bytes. Omits bytes after the picture. Empty if libjpeg
/// cannot write such a file: its MCUs have more than ten blocks, or its components share a table that changes between scans.
/// Refuses (errc::sample) what libjpeg refuses, warnings about corrupt data, more than 500 scans, and a lack of memory.
result<std::optional<transcoded_jpeg>> add_restart_markers(std::span<const std::byte> file);

}  // namespace penstock
