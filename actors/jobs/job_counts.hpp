// Counts a pool's jobs from their submission until their callers have been notified. Any thread may call.
#pragma once

#include "actors/jobs/job_scheduler.hpp"

#include <penstock/report.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::jobs {

class job_counts {
 public:
  /// `judged`: pool_options::judged.
  explicit job_counts(bool judged = false) : judged_(judged) {}

  /// Counts one more job and returns its number; the first is 1.
  std::uint64_t submit() noexcept { return ++submitted_; }
  /// Returns the number of a job that repeats an ended job about which the program has not decided: the
  /// two count as one.
  std::uint64_t submit_again(std::string_view function);
  /// Records what the program has decided about a job that has ended.
  void judge(std::string_view function, job_verdict verdict);
  [[nodiscard]] std::uint64_t submitted() const noexcept {
    return submitted_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_.load(std::memory_order_relaxed); }

  void count(const job_listener::tally& ended, std::span<const job_listener::function_counts> functions, const job_listener::under_way& now);
  /// Counts jobs that ended, cancelled or failed, before an actor received them; their callers have been notified.
  void count_orphans(std::uint64_t jobs, bool cancelled);
  void count_notified(std::uint64_t jobs);
  /// Sets the names of all functions, by index.
  void name_functions(const std::vector<std::string>& names);

  /// Waits until the callers of all submitted jobs have been notified. False if that takes longer than `at_most`.
  [[nodiscard]] bool wait_until_all_notified(nanoseconds at_most);
  /// Leaves out the bytes held, which only admission knows. Jobs that are neither running nor ended count as waiting, even
  /// if a worker already has them. When the worker has begun one of them, host::look_closer counts it as running.
  [[nodiscard]] pool_statistics statistics() const;

 private:
  struct verdicts {
    std::uint64_t ok = 0;
    std::uint64_t nonzero_exits = 0;
    std::uint64_t failed = 0;
    std::uint64_t again = 0;  ///< ended jobs that were repeated before the program decided about them
  };
  [[nodiscard]] verdicts& of(std::string_view function);
  template <class Counts>
  static void replace(Counts& counts, const verdicts& by);

  const bool judged_;
  std::atomic<std::uint64_t> submitted_ = 0;
  std::atomic<std::uint64_t> ended_ = 0;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable notified_changed_;
  pool_statistics counted_;  // `functions` stays empty here
  std::vector<std::string> names_;
  std::vector<job_listener::function_counts> by_function_;
  std::uint64_t notified_ = 0;
  verdicts judgements_;
  std::map<std::string, verdicts, std::less<>> by_name_;
};

}  // namespace penstock::jobs
