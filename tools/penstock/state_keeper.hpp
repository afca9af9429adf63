// Keeps a state file up to date, and knows what it holds. Used by run and launch.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::cli {

/// One thread reads and writes; any thread may ask what is left behind.
class state_keeper {
 public:
  /// `path` empty: keeps no file.
  explicit state_keeper(std::string path);

  /// Like read_state(); also remembers what the file holds.
  [[nodiscard]] result<std::vector<std::byte>> read();
  /// Replaces the file, unless it holds this state already. If that fails, the file holds what it held before.
  [[nodiscard]] result<void> write(std::vector<std::byte> state);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// What the file holds; empty: there was none.
  [[nodiscard]] const std::vector<std::byte>& contents() const noexcept { return contents_; }
  /// What a killed program leaves behind: "'photos.state' holds the position: epoch 0, 96 samples delivered". Does not
  /// access the disk.
  [[nodiscard]] std::string left_behind() const;

 private:
  void now_holds(std::vector<std::byte> state);

  const std::string path_;
  std::vector<std::byte> contents_;
  mutable std::mutex mutex_;  // guards what follows
  std::string position_;      // the position in words; empty: there is no file
  bool writing_ = false;
};

}  // namespace penstock::cli
