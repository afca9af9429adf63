// The final record of a session that has ended or was killed: a file of JSON lines next to the control
// sockets, which the session writes while it runs. This header handles the file: its path, its size limit,
// and whether its writer still runs. The session decides the lines.
//
// Nothing is synced to disk: a record survives its process, but not its machine. The writer holds a lock on
// the file, which shows others that it still runs.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/line_file.hpp"
#include "runtime/base/result.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::control {

/// A record that grows beyond this is rewritten from what the session still knows: at most half as large.
inline constexpr std::size_t record_bytes_max = std::size_t{4} << 20U;
/// How many prune_records() keeps, and how many bytes.
inline constexpr std::size_t records_kept = 64;
inline constexpr std::uint64_t records_bytes_kept = std::uint64_t{64} << 20U;

/// "photos@20261124T183344.123-4711": the session's name, its start time (UTC), its pid.
[[nodiscard]] std::string session_id(const std::string& session, int pid, std::chrono::system_clock::time_point started);

/// Not thread-safe. Blocks as long as the file system does.
class session_record {
 public:
  /// An empty record, mode 0600, in the folder of the control sockets.
  static result<session_record> create(const std::string& session, int pid,
                                       std::chrono::system_clock::time_point started);
  session_record(session_record&&) noexcept = default;
  session_record& operator=(session_record&&) noexcept = default;
  ~session_record() = default;

  /// Appends whole lines, or none of them if the disk is full.
  result<void> append(std::string_view lines);
  /// Replaces the contents; readers see either the old or the new.
  result<void> rewrite(std::string_view lines);
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Updates the file's time without writing. Readers take that time as the last one at which the session was alive.
  void touch() noexcept;
  /// Call when the session ends: releases the lock. Otherwise a forked child with a copy of the descriptor
  /// would keep the lock.
  void finish() noexcept;

 private:
  session_record(std::filesystem::path path, unique_fd file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::filesystem::path path_;
  line_file file_;
  std::size_t bytes_ = 0;
};

struct found_record {
  std::string id;  ///< session_id()
  std::string session;
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  bool live = false;  ///< whether its session is still running
};
/// Newest first.
[[nodiscard]] std::vector<found_record> find_records();
[[nodiscard]] bool is_record(const std::filesystem::path& path);
/// Whether the record's session is still running and writes to the record.
[[nodiscard]] bool is_written(const std::filesystem::path& record);

/// The whole lines of a record.
[[nodiscard]] result<std::vector<std::string>> read_record(const std::filesystem::path& path);

/// Adds to a process's records how the process ended: "SIGKILL", "exit code 3". Called by its parent. `begun`: when the
/// process was started; older records belong to an earlier process with this pid. Does not change the times of the
/// records. Skips records that cannot be written.
void note_process_end(int pid, std::chrono::system_clock::time_point begun, std::string_view how);

/// Removes records of ended sessions until they are within the limits for number and bytes. Each time it removes the oldest record of
/// the name that uses most of the exceeded limit, so that many short sessions of one name do not displace the few of another.
/// Returns how many records it removed.
std::size_t prune_records();

}  // namespace penstock::control
