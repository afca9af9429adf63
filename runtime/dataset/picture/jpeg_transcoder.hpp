// Rewrites a JPEG with restart markers, without loss: its coefficients are coded again, its pixels stay. Used by
// `penstock pack`.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace penstock {

/// How many MCUs are between two markers: a whole fraction of a row of MCUs, at most 32 pixels where MCUs are smaller.
/// Both arguments are at least 1.
std::uint32_t restart_interval_for(std::uint32_t mcus_in_row, std::uint32_t mcu_width) noexcept;

struct transcoded_jpeg {
  std::string file;
  bool was_progressive = false;
};

/// A sequential JPEG in one scan, with optimised tables, all segments of metadata, and markers as restart_interval_for()
/// says: the same bytes for the same file and library. Bytes after the picture are left out. Empty if libjpeg cannot
/// write it so: its MCUs have more than ten blocks, or its components share a table that changes between scans.
/// Refuses (errc::sample) what libjpeg refuses, its warnings about corrupt data, more than 500 scans, and a lack of memory.
result<std::optional<transcoded_jpeg>> add_restart_markers(std::span<const std::byte> file);

}  // namespace penstock
