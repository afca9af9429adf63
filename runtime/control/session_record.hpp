// What remains of a session when it has ended, or was killed: a file of JSON lines beside the control sockets, which the session
// writes while it runs. This is where the file is, how it is bounded, and who still writes it; the lines are the session's.
//
// Nothing is synced to the disk: a record outlives its process, not its machine. The writer holds a lock on the file, so others
// see whether it still lives.
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

/// A record that grows beyond this is written again, from what the session still knows: at most half of it.
inline constexpr std::size_t record_bytes_max = std::size_t{4} << 20U;
/// What prune_records() leaves, the newest: of one name, in all, and in bytes.
inline constexpr std::size_t records_kept_of_a_name = 8;
inline constexpr std::size_t records_kept = 64;
inline constexpr std::uint64_t records_bytes_kept = std::uint64_t{64} << 20U;

/// Not thread-safe. Blocks as file systems do.
class session_record {
 public:
  /// An empty one, mode 0600, in the folder of the control sockets.
  static result<session_record> create(const std::string& session, int pid,
                                       std::chrono::system_clock::time_point started);
  session_record(session_record&&) noexcept = default;
  session_record& operator=(session_record&&) noexcept = default;
  ~session_record() = default;

  /// Whole lines; a full disk leaves none of them.
  result<void> append(std::string_view lines);
  /// Replaces the contents; readers see the old or the new ones.
  result<void> rewrite(std::string_view lines);
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// The session has ended. A copy of the descriptor in a forked child means nothing from now on.
  void finish() noexcept;

 private:
  session_record(std::filesystem::path path, unique_fd file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::filesystem::path path_;
  line_file file_;
  std::size_t bytes_ = 0;
};

struct found_record {
  std::string id;  ///< "photos@20261124T183344.123-4711": the session's name, when it began (UTC), its pid
  std::string session;
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  bool live = false;  ///< its session is still running
};
/// The newest first.
[[nodiscard]] std::vector<found_record> find_records();
[[nodiscard]] bool is_record(const std::filesystem::path& path);

/// Whole lines.
[[nodiscard]] result<std::vector<std::string>> read_record(const std::filesystem::path& path);

/// Removes the records of ended sessions that are too many. Returns how many.
std::size_t prune_records();

}  // namespace penstock::control
