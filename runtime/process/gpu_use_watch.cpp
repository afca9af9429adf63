#include "runtime/process/gpu_use_watch.hpp"

#include "runtime/process/process_facts.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace penstock::process {

std::optional<gpu_user> gpu_user_among(pid_t leader) {
  std::vector<pid_t> family = descendants_of(leader);
  family.insert(family.begin(), leader);
  for (const pid_t pid : family) {
    if (auto use = gpu_use_of(pid)) return gpu_user{pid, std::move(*use)};
  }
  return std::nullopt;
}

/// Shared with the thread, which may outlive us.
struct gpu_use_watch::findings {
  explicit findings(look_function how) : look(std::move(how)) {}

  const look_function look;
  mutable std::mutex mutex;
  bool under_way = false;
  std::map<pid_t, gpu_user> found;
};

gpu_use_watch::gpu_use_watch(look_function look)
    : findings_(std::make_shared<findings>(std::move(look))), thread_("penstock-audit") {}

void gpu_use_watch::look(std::vector<pid_t> leaders) {
  {
    const std::lock_guard hold(findings_->mutex);
    if (std::exchange(findings_->under_way, true)) return;
  }
  const bool posted = thread_.post([kept = findings_, all = std::move(leaders)] {
    std::map<pid_t, gpu_user> found;
    for (const pid_t leader : all) {
      if (auto user = kept->look(leader)) found.emplace(leader, std::move(*user));
    }
    const std::lock_guard hold(kept->mutex);
    kept->found = std::move(found);
    kept->under_way = false;
  });
  if (posted) return;
  const std::lock_guard hold(findings_->mutex);
  findings_->under_way = false;  // no thread could be started: the next check tries again
}

std::optional<gpu_user> gpu_use_watch::found_in(pid_t leader) const {
  const std::lock_guard hold(findings_->mutex);
  const auto it = findings_->found.find(leader);
  return it == findings_->found.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace penstock::process
