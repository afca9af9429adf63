#include "runtime/process/oom_watch.hpp"

#include <fstream>
#include <string>
#include <system_error>

namespace penstock::process {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// The count and the death belong to the same event, so they arrive close together.
constexpr auto belongs_together = 2s;

}  // namespace

std::optional<fs::path> oom_evidence_file(const fs::path& proc_cgroup, const fs::path& cgroup_root) {
  std::ifstream groups(proc_cgroup);
  std::optional<fs::path> found;
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path group = fs::path(line.substr(second + 1)).relative_path();
    fs::path file;
    if (controllers == ",,") file = cgroup_root / group / "memory.events";
    if (controllers.find(",memory,") != std::string::npos)
      file = cgroup_root / "memory" / group / "memory.oom_control";
    std::error_code ignored;
    if (file.empty()) continue;
    // In a container the path may be that of the host, although the mount shows only our part of the tree.
    if (!fs::exists(file, ignored))
      file = file.filename() == "memory.events" ? cgroup_root / "memory.events"
                                                : cgroup_root / "memory" / "memory.oom_control";
    if (fs::exists(file, ignored)) found = file;
  }
  return found;
}

oom_watch::oom_watch(std::optional<fs::path> evidence) : evidence_(std::move(evidence)), counted_(count()) {}

std::uint64_t oom_watch::count() const {
  if (!evidence_) return 0;
  std::ifstream file(*evidence_);
  std::string key;
  for (std::uint64_t value = 0; file >> key >> value;) {
    if (key == "oom_kill") return value;
  }
  return 0;
}

void oom_watch::look(steady_time now) {
  if (!evidence_) return;
  const steady_time ran = clock_.look(now);
  const std::uint64_t counted = count();
  if (counted > counted_) {
    unexplained_ += counted - counted_;
    counted_ = counted;
    latest_ = ran;
  } else if (unexplained_ > 0 && ran - latest_ > belongs_together) {
    unexplained_ = 0;
  }
}

bool oom_watch::explains_death(steady_time now) {
  look(now);
  if (unexplained_ == 0) return false;
  --unexplained_;
  return true;
}

}  // namespace penstock::process
