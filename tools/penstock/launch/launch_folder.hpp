// The temporary folder of a launcher, in which its sessions write their reports. The launcher locks it, so
// that other processes can distinguish a folder in use from one whose launcher was killed. Used by launch,
// doctor and sessions --prune.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock::cli {

/// Created in $TMPDIR; removed with its contents.
class launch_folder {
 public:
  launch_folder() = default;
  ~launch_folder();
  launch_folder(const launch_folder&) = delete;
  launch_folder& operator=(const launch_folder&) = delete;

  result<void> make();
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  unique_fd lock_;
};

/// The folders of launchers that are gone and used the same folder of control sockets as this process;
/// sorted.
[[nodiscard]] std::vector<std::filesystem::path> left_launch_folders();
/// Removes these folders and returns their number.
std::size_t remove_left_launch_folders();

}  // namespace penstock::cli
