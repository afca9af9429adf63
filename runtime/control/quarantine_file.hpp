// The quarantine file: samples that kill workers, remembered from run to run. JSON lines, only ever appended
// to; the last line about a sample counts. Every line carries the fingerprint of its dataset and means
// nothing for another one. Used by the session and by `penstock quarantine`.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock::control {

struct quarantine_entry {
  std::string fingerprint;
  quarantine_report sample;
  std::string session;       ///< that found it
  std::int64_t unix_ms = 0;  ///< when
  bool released = false;     ///< an operator has taken it back
};

struct quarantine_list {
  std::vector<quarantine_entry> entries;  ///< of all datasets, the last word about each sample, none released
  std::vector<std::string> notices;       ///< lines that are no entries: they are skipped
};

/// A file that does not exist is an empty list. A last line without its end was cut off by a crash and is
/// passed over. Refuses (errc::io) a file that cannot be read, and what is no regular file. Waits for its
/// disk.
result<quarantine_list> read_quarantine(const std::filesystem::path& file);

/// Adds one line and waits until it is on the disk, the file's name too if it is new, and before that for
/// whoever has the file locked (flock), which may be for ever. Refuses with errc::io. Several sessions may
/// append to one file.
result<void> append_quarantine(const std::filesystem::path& file, const quarantine_entry& entry);

}  // namespace penstock::control
