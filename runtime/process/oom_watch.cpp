#include "runtime/process/oom_watch.hpp"

#include "runtime/base/cgroups.hpp"

#include <fstream>
#include <string>
#include <system_error>

namespace penstock::process {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// How far apart the count and the death of one OOM kill may arrive.
constexpr auto belongs_together = 2s;

}  // namespace

std::optional<fs::path> oom_evidence_file(const fs::path& root) {
  for (const cgroup_folder& folder : cgroup_folders(root, "memory")) {
    const fs::path file = folder.path / (folder.v2 ? "memory.events" : "memory.oom_control");
    if (std::error_code ignored; fs::exists(file, ignored)) return file;
  }
  return std::nullopt;
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
