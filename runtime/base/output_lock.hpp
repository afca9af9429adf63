// Keeps two runs from writing the same output at once. Used for a sink's journal and folder, for states and
// reports, and for the output of `penstock map` and `penstock pack`.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// The file that a lock is on, as /proc/locks spells it.
struct locked_file {
  unsigned major = 0;
  unsigned minor = 0;
  std::uint64_t inode = 0;
};
/// The process that holds the lock, according to the text of /proc/locks. Pure.
[[nodiscard]] std::optional<pid_t> lock_holder_in(std::string_view proc_locks, const locked_file& file);

/// Locks an open file or folder until its last descriptor is closed. Refuses (errc::io) one that another run
/// has locked: "another run is writing the output 'x' (pid 4711): ...". `what`: "the output 'x'". Some network
/// file systems have no locks; runs there work without one.
[[nodiscard]] result<void> lock_output(int fd, std::string_view what);

/// An advisory lock that is released with the object, or when the process ends, even by a kill. Programs that this
/// process executes do not inherit it; children that it forks keep it after a SIGKILL of this process. Readers need no
/// lock.
class output_lock {
 public:
  /// Locks nothing.
  output_lock() = default;
  output_lock(output_lock&& other) noexcept;
  output_lock& operator=(output_lock&& other) noexcept;
  ~output_lock();

  /// For a file that may be missing, or is replaced by renaming another one: locks PATH.penstock-lock next to it and
  /// removes that at the end. A killed process leaves it behind, unlocked. Locks nothing if the path is empty, a pipe
  /// or a device, or if the folder cannot be written: the code that writes the output reports that.
  [[nodiscard]] static result<output_lock> of_file(const std::string& path, std::string_view what);
  /// Locks a folder that exists. Locks nothing if it cannot be opened.
  [[nodiscard]] static result<output_lock> of_folder(const std::string& path, std::string_view what);

 private:
  output_lock(unique_fd fd, std::string file);

  unique_fd fd_;
  std::string file_;  // the file to remove at the end; empty: none
  pid_t owner_ = 0;
};

/// Locks all of these files (output_lock::of_file), or none. `what`: "the state".
[[nodiscard]] result<std::vector<output_lock>> lock_files(std::string_view what, const std::vector<std::string>& paths);

}  // namespace penstock
