#include "actors/jobs/job_counts.hpp"

#include <algorithm>

namespace penstock::jobs {

std::uint64_t job_counts::submit_again() {
  const std::lock_guard hold(mutex_);
  ++repeats_;
  return ++submitted_;
}

void job_counts::verdicts::add(job_verdict one) {
  switch (one) {
    case job_verdict::nonzero_exit: ++nonzero_exits; [[fallthrough]];
    case job_verdict::ok: ++ok; return;
    case job_verdict::failed: ++failed; return;
    case job_verdict::again: ++again; return;
  }
}

void job_counts::judge(std::string_view function, job_verdict verdict) {
  if (!judged_) return;
  const std::lock_guard hold(mutex_);
  judgements_.add(verdict);
  const auto found = by_name_.find(function);
  (found != by_name_.end() ? found->second : by_name_[std::string(function)]).add(verdict);
}

/// Jobs that have ended but have not been judged count as running.
template <class Counts>
void job_counts::replace(Counts& counts, const verdicts& by) {
  const std::uint64_t ended = counts.ok + counts.failed;
  counts.running += ended - std::min(ended, by.ok + by.failed + by.again);
  counts.ok = by.ok;
  counts.failed = by.failed;
}

void job_counts::count_ended(const job_news::tally& some,
                             std::span<const job_news::function_counts> functions) {
  ended_.fetch_add(some.ok + some.failed + some.cancelled, std::memory_order_relaxed);
  const std::lock_guard hold(mutex_);
  counted_.ok += some.ok;
  counted_.failed += some.failed;
  counted_.retried += some.retried;
  counted_.cancelled += some.cancelled;
  by_function_.assign(functions.begin(), functions.end());
}

void job_counts::count_orphans(std::uint64_t jobs, bool cancelled) {
  ended_.fetch_add(jobs, std::memory_order_relaxed);
  const std::lock_guard hold(mutex_);
  (cancelled ? counted_.cancelled : counted_.failed) += jobs;
  notified_ += jobs;
  notified_changed_.notify_all();
}

void job_counts::count_notified(std::uint64_t jobs) {
  const std::lock_guard hold(mutex_);
  notified_ += jobs;
  notified_changed_.notify_all();
}

void job_counts::set_under_way(std::uint64_t leased, std::uint64_t at_device) {
  const std::lock_guard hold(mutex_);
  counted_.handed = leased;
  counted_.running = at_device;
}

void job_counts::name_functions(const std::vector<std::string>& names) {
  const std::lock_guard hold(mutex_);
  names_ = names;
}

bool job_counts::wait_until_all_notified(nanoseconds at_most) {
  std::unique_lock hold(mutex_);
  return notified_changed_.wait_for(hold, at_most, [this] { return notified_ == submitted_.load(); });
}

pool_statistics job_counts::statistics() const {
  const std::lock_guard hold(mutex_);
  pool_statistics all = counted_;
  all.submitted = submitted_.load() - repeats_;
  for (std::size_t i = 0; i < by_function_.size(); ++i) {
    const job_news::function_counts& f = by_function_[i];
    if (f.waiting + f.running + f.ok + f.failed + f.cancelled == 0) continue;
    all.functions.push_back({names_.at(i), f.waiting, f.running, f.ok, f.failed, f.retried, f.cancelled});
  }
  if (!judged_) return all;
  replace(all, judgements_);
  all.nonzero_exits = judgements_.nonzero_exits;
  for (function_statistics& f : all.functions) {
    const auto found = by_name_.find(f.name);
    replace(f, found == by_name_.end() ? verdicts() : found->second);
  }
  return all;
}

}  // namespace penstock::jobs
