#include "runtime/base/cgroups.hpp"

#include <fstream>
#include <string>

namespace penstock {

namespace fs = std::filesystem;

std::vector<cgroup_folder> cgroup_folders(const fs::path& root, std::string_view controller) {
  std::vector<cgroup_folder> folders;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path" or "0::/path"
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find("," + std::string(controller) + ",") == std::string::npos) continue;
    const fs::path mount = v2 ? root / "sys/fs/cgroup" : root / "sys/fs/cgroup" / controller;
    for (fs::path group = line.substr(second + 1);; group = group.parent_path()) {
      const fs::path below = group.relative_path();
      folders.push_back({below.empty() ? mount : mount / below, v2});
      if (below.empty()) break;
    }
  }
  return folders;
}

}  // namespace penstock
