#include "actors/jobs/job_counts.hpp"

#include <algorithm>

namespace penstock::jobs {

/// Call with mutex_ held.
job_counts::verdicts& job_counts::of(std::string_view function) {
  const auto found = by_name_.find(function);
  return found != by_name_.end() ? found->second : by_name_[std::string(function)];
}

std::uint64_t job_counts::submit_again(std::string_view function) {
  if (!judged_) return submit();
  const std::lock_guard hold(mutex_);
  for (verdicts* const some : {&judgements_, &of(function)}) ++some->again;
  return ++submitted_;
}

void job_counts::judge(std::string_view function, job_verdict verdict) {
  if (!judged_) return;
  const std::lock_guard hold(mutex_);
  for (verdicts* const some : {&judgements_, &of(function)}) {
    ++(verdict == job_verdict::failed ? some->failed : some->ok);
    some->nonzero_exits += verdict == job_verdict::nonzero_exit ? 1 : 0;
  }
}

/// Jobs that have ended count as running until the program has decided about them.
template <class Counts>
void job_counts::replace(Counts& counts, const verdicts& by) {
  const std::uint64_t ended = counts.ok + counts.failed;
  counts.running += ended - std::min(ended, by.ok + by.failed + by.again);
  counts.ok = by.ok;
  counts.failed = by.failed;
}

void job_counts::count(const job_listener::tally& ended, std::span<const job_listener::function_counts> functions, const job_listener::under_way& now) {
  ended_.fetch_add(ended.ok + ended.failed + ended.cancelled, std::memory_order_relaxed);
  const std::lock_guard hold(mutex_);
  counted_.ok += ended.ok;
  counted_.failed += ended.failed;
  counted_.retried += ended.retried;
  counted_.cancelled += ended.cancelled;
  counted_.handed = now.leased;
  counted_.running = now.at_device;
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
  for (std::size_t i = 0; i < by_function_.size(); ++i) {
    const job_listener::function_counts& f = by_function_[i];
    if (f.waiting + f.running + f.ok + f.failed + f.cancelled == 0) continue;
    all.functions.push_back({names_.at(i), f.waiting, f.running, f.ok, f.failed, f.retried, f.cancelled});
  }
  if (judged_) {
    replace(all, judgements_);
    all.nonzero_exits = judgements_.nonzero_exits;
    for (function_statistics& f : all.functions) {
      const auto found = by_name_.find(f.name);
      replace(f, found == by_name_.end() ? verdicts() : found->second);
    }
  }
  const std::uint64_t known = all.running + all.ok + all.failed + all.cancelled;
  all.submitted = submitted_.load() - judgements_.again;
  all.waiting = all.submitted - std::min(all.submitted, known);
  return all;
}

}  // namespace penstock::jobs
