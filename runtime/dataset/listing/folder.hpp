// Reads one folder: names and types of entries, with as few system calls as the file system allows. Used by
// the listings.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class entry_kind : std::uint8_t { folder, other };

struct folder_entry {
  std::string name;
  entry_kind kind = entry_kind::other;
  std::uint64_t size = 0;  ///< size of a file, with links followed; 0 for a folder or a dangling link
};

/// Device and inode: the same for every path to a folder.
struct folder_identity {
  ::dev_t device = 0;
  ::ino_t inode = 0;
  bool operator==(const folder_identity&) const = default;
};

/// The number of skipped files, by file name extension.
using skipped_files = std::map<std::string, std::uint64_t, std::less<>>;

struct folder_contents {
  folder_identity identity;
  skipped_files skipped;
  std::uint64_t hidden = 0;  ///< wanted files whose names begin with a dot
  std::vector<folder_entry> entries;  ///< in byte order of their names, without names that begin with a dot
};

/// Opens a folder for reading, relative to `at` (AT_FDCWD:
/// the current folder). Error messages call it `shown`.
result<unique_fd> open_folder(int at, const std::string& path, std::string_view shown);

/// Reads an open folder. Examines only files for which `wanted` returns true, to get their size. Leaves out the others,
/// and counts those for which `skipped` returns an extension. A link to a folder counts as a folder. Any system error
/// is a refusal (errc::io), so the list is never silently incomplete.
result<folder_contents> read_folder(unique_fd folder, std::string_view shown,
                                    bool (*wanted)(std::string_view name),
                                    std::string_view (*skipped)(std::string_view name) = nullptr);

/// The paths of the wanted files of a folder, in byte order. Leaves out names that begin with a dot, and does not enter
/// subfolders: notices say how many there are. `what`: "shards".
result<std::vector<std::string>> files_of_folder(const std::string& path, std::string_view what,
                                                 std::vector<std::string>& notices,
                                                 bool (*wanted)(std::string_view name));

/// "3 files skipped: .heic 2, .tiff 1", the most frequent first; empty if there are none.
std::string skipped_text(const skipped_files& files);

}  // namespace penstock
