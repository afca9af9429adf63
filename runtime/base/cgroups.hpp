// Where the cgroups of this process lie: memory, processor and process limits are looked for there, by
// whoever needs one of them.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace penstock {

struct cgroup_folder {
  std::filesystem::path path;
  bool v2 = true;  ///< else the controller has a hierarchy of its own, with version 1's files
};

/// Our cgroup for that controller ("memory", "cpu", "pids") and all above it, from the inside out, version 2
/// and version 1. Folders may be missing: in a container the path may not exist, the mount itself does. With
/// another root than "/" the files below it are asked.
[[nodiscard]] std::vector<cgroup_folder> cgroup_folders(const std::filesystem::path& root,
                                                        std::string_view controller);

}  // namespace penstock
