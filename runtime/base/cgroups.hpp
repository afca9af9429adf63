// Finds the cgroup folders of this process, where memory, CPU and process limits can be read.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace penstock {

struct cgroup_folder {
  std::filesystem::path path;
  bool v2 = true;  ///< false: the controller has its own hierarchy, with the files of version 1
};

/// This process's cgroup for that controller ("memory", "cpu", "pids") and its ancestors, innermost first, in
/// versions 2 and 1. A folder may be missing: a container has the mount, but not always the path. With a root
/// other than "/", reads the files below that root.
[[nodiscard]] std::vector<cgroup_folder> cgroup_folders(const std::filesystem::path& root,
                                                        std::string_view controller);

}  // namespace penstock
