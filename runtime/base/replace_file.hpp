// Replaces a file by new contents: whoever reads it sees the old file or the new one, never a part, also when
// this process is killed half-way. Used for saved states and reports.
#pragma once

#include "runtime/base/result.hpp"

#include <string>
#include <string_view>

namespace penstock {

/// Writes the contents to a new file beside `path` (".tmp-PID-N" after its name, created exclusively, links
/// never followed), has it reach the disk, and renames it to `path`. The new file keeps the permissions of
/// the old one. If `path` is a symbolic link, the file that it leads to is replaced. Any failure leaves the
/// old file as it was and no temporary file; only a process that is killed meanwhile leaves one. Refuses
/// (errc::io) what is no regular file: a device or a pipe is not to be replaced. May be called from several
/// threads and processes at once; the last rename wins. Blocks until the disk has it.
[[nodiscard]] result<void> replace_file(const std::string& path, std::string_view contents);

/// Whether replace_file() could work: tried before a long run, not after it. Changes nothing.
[[nodiscard]] result<void> check_replaceable(const std::string& path);

}  // namespace penstock
