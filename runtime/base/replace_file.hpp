// Replaces a file atomically: a reader sees the old or the new contents, never a part, even if this process
// is killed. Used for saved states and reports.
#pragma once

#include "runtime/base/result.hpp"

#include <string>
#include <string_view>

namespace penstock {

/// Writes the contents to a new file next to `path` (with ".tmp-PID-N" appended, created exclusively, links
/// never followed), syncs it to disk, and renames it to `path`. The new file keeps the permissions of the old
/// one. If `path` is a symbolic link, its target is replaced. On failure the old file is unchanged and the
/// temporary file is removed; only a killed process leaves one behind. Refuses (errc::io) anything but a
/// regular file. May be called from several threads and processes at once; the last rename wins. Blocks until
/// the data is on disk.
[[nodiscard]] result<void> replace_file(const std::string& path, std::string_view contents);

/// Removes temporary files of `path` that killed processes left behind. Call it only while no other process replaces
/// `path`, for example under an output_lock. Files that cannot be removed stay.
void remove_leftovers(const std::string& path);

/// Whether replace_file() would succeed, for checking before a long run. Changes nothing.
[[nodiscard]] result<void> check_replaceable(const std::string& path);

}  // namespace penstock
