#include "runtime/process/gpu_use_watch.hpp"

#include "runtime/process/process_facts.hpp"

#include <algorithm>
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

/// Shared with the checking threads, which may outlive the object.
struct gpu_use_watch::findings {
  explicit findings(look_function how) : look(std::move(how)) {}

  const look_function look;
  mutable std::mutex mutex;  // guards the members below, and the rounds
  std::map<pid_t, gpu_user> found;
};

/// The checks requested by one call, on one thread.
struct gpu_use_watch::round {
  std::vector<pid_t> leaders;  // not checked yet
  pid_t current = 0;           // 0: none
  bool moved = true;           // whether a check has finished since the last call
  bool left = false;           // the current check hangs, so another thread does the other checks

  [[nodiscard]] bool over() const { return current == 0 && leaders.empty(); }

  static void carry_out(round& r, findings& all) {
    std::unique_lock hold(all.mutex);
    while (!r.left && !r.leaders.empty()) {
      r.current = r.leaders.back();
      r.leaders.pop_back();
      hold.unlock();
      auto user = all.look(r.current);
      hold.lock();
      if (user) {
        all.found.insert_or_assign(r.current, std::move(*user));
      } else {
        all.found.erase(r.current);
      }
      r.moved = true;
      r.current = 0;
    }
  }
};

gpu_use_watch::gpu_use_watch(look_function look) : findings_(std::make_shared<findings>(std::move(look))) {}

gpu_use_watch::~gpu_use_watch() {
  for (const looker& one : hanging_) one.thread->stop_within(std::chrono::milliseconds(0));
}

void gpu_use_watch::look(std::vector<pid_t> leaders) {
  std::vector<looker> returned;  // destroyed after the lock is released
  std::unique_lock hold(findings_->mutex);
  const auto hangs = [](const looker& one) { return one.at->current != 0; };
  const auto first_returned = std::partition(hanging_.begin(), hanging_.end(), hangs);
  returned.assign(std::move_iterator(first_returned), std::move_iterator(hanging_.end()));
  hanging_.erase(first_returned, hanging_.end());

  if (current_.at && !current_.at->over()) {
    if (std::exchange(current_.at->moved, false)) return;
    current_.at->left = true;
    current_.at->leaders.clear();
    hanging_.push_back(std::move(current_));
    current_ = {};
  }
  std::erase_if(findings_->found,
                [&](const auto& one) { return std::ranges::find(leaders, one.first) == leaders.end(); });
  std::erase_if(leaders, [&](pid_t pid) {
    return std::ranges::any_of(hanging_, [&](const looker& one) { return one.at->current == pid; });
  });
  if (!current_.thread) current_.thread = std::make_unique<side_thread>("penstock-audit");
  current_.at = std::make_shared<round>();
  current_.at->leaders = std::move(leaders);
  hold.unlock();
  const bool posted =
      current_.thread->post([all = findings_, at = current_.at] { round::carry_out(*at, *all); });
  if (posted) return;
  hold.lock();
  current_.at->leaders.clear();  // no thread could be started, so the next call tries again
}

std::optional<gpu_user> gpu_use_watch::found_in(pid_t leader) const {
  const std::lock_guard hold(findings_->mutex);
  const auto it = findings_->found.find(leader);
  return it == findings_->found.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace penstock::process
