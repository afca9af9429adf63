// The quarantine file: samples that kill workers, remembered from run to run. JSON lines, append-only; the
// last line about a sample counts. Every line has the fingerprint of its dataset and does not apply to other
// datasets. Used by the session and by `penstock quarantine`.
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
  std::string session;       ///< the session that found it
  std::int64_t unix_ms = 0;  ///< when
  bool released = false;     ///< an operator has released it
};

struct quarantine_list {
  std::vector<quarantine_entry>
      entries;                       ///< the last entry of each sample of any dataset, unless released
  std::vector<std::string> notices;  ///< about skipped lines that are not entries
};

/// A missing file is an empty list. Ignores a last line without a line end, which a crash cut off. Refuses
/// (errc::io) a file that is not regular or cannot be read, and one that has lines but no entry. Waits for the disk.
result<quarantine_list> read_quarantine(const std::filesystem::path& file);

/// Appends one line and waits until the line is on disk, together with the name of a new file. First waits
/// for the file's lock (flock), without a limit. Refuses with errc::io. Several sessions may append to one
/// file.
result<void> append_quarantine(const std::filesystem::path& file, const quarantine_entry& entry);

}  // namespace penstock::control
