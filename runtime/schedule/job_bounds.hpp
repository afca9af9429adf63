// Limits on the jobs of a pool: how many may wait ([jobs] queue), and how many bytes arguments and results may take
// ([jobs] memory). Decides whether a job may be submitted, how much room results have (the job book starts
// jobs accordingly), and whether a caller waits for something that only it can do. Pure: no thread, no clock.
// Driven by actors/jobs/admission, under its lock.
//
//   argument   from its job's submission to the end of the job
//   result     outside of slots, from the end of its job until its caller frees it
//
// Arguments and results share the memory: a job is submitted only while both together leave room for its
// argument. Results may use what arguments leave, and always half of the memory, so that arguments alone
// never stop a worker.
//
// Two kinds of submission wait less, because the submitting thread itself may have to free the memory. A
// callback never waits for results to be freed, and waits for jobs to start only if twice the queue is full.
// An urgent job (a retry of a failed one) never waits.
//
// A thread waits for itself if nothing can happen until it frees a result: no job runs, the next job would
// exceed the memory, and this thread holds all the results that are in the way. If nothing changes for
// `patience`, not counting time while the process did not run, this is an error. If another thread holds
// some of the results, or nobody has taken them yet, the wait may still end: it is reported
// (supervision/awaited), and continues.
#pragma once

#include "runtime/base/patient_deadline.hpp"
#include "runtime/schedule/job_book.hpp"

#include <atomic>
#include <cstdint>
#include <list>
#include <optional>

namespace penstock::schedule {

enum class submitter : std::uint8_t {
  caller,    ///< any thread
  callback,  ///< the pool's callback thread
  urgent,    ///< any thread that submits an urgent job
};

/// Not thread-safe, except for result_held::owner.
class job_bounds {
 public:
  static constexpr nanoseconds patience{10'000'000'000};
  static constexpr nanoseconds look_every{1'000'000'000};

  /// Threads are numbered from 1.
  using thread_number = std::uint64_t;

  struct result_held {
    result_held(job_id whose, std::uint64_t how_many) : job(whose), bytes(how_many) {}
    job_id job;
    std::uint64_t bytes;
    /// The thread that holds the result, or whose callback will get it; 0: not taken yet.
    std::atomic<thread_number> owner{0};
  };
  using holding = std::list<result_held>::iterator;

  job_bounds(std::uint64_t queue, std::uint64_t memory) : queue_(queue), memory_(memory) {}

  // Submissions.

  /// Whether an argument of that size can ever be submitted.
  [[nodiscard]] bool possible(std::uint64_t bytes) const noexcept { return bytes <= memory_; }
  [[nodiscard]] bool admits(std::uint64_t bytes, submitter who) const noexcept;
  /// Requires possible().
  void entered(std::uint64_t bytes);
  /// This many jobs no longer wait. Call once per job: a job that waits again after a
  /// death is not counted again.
  void begun(std::uint64_t jobs);
  /// A job has ended and its argument is freed.
  void ended(std::uint64_t bytes);
  /// A caller starts or stops waiting to submit a job. `given_up`: it has stopped without
  /// submitting, but may call again at once, like a caller that waits in several short steps.
  void asks();
  void asked(std::optional<steady_time> given_up = std::nullopt);
  /// Whether a caller waits.
  [[nodiscard]] bool anyone_asks(steady_time now) const noexcept;

  // Results.

  holding kept(job_id job, std::uint64_t bytes);
  void freed(holding what);
  /// How many bytes results may use.
  [[nodiscard]] std::uint64_t room_for_results() const noexcept;
  /// Bytes of results of jobs before this one.
  [[nodiscard]] std::uint64_t results_before(job_id job);

  // Waits.

  /// Call after each decision of the job book, with the number of running jobs and the first job that cannot
  /// start for lack of memory.
  void decided(std::uint64_t running, std::optional<job_id> held_back);
  /// Whether no job runs, and no job can start or be submitted until callers free results.
  [[nodiscard]] bool callers_hold_everything(steady_time now) const noexcept;
  /// Call at least every `look_every` while any caller waits. Time without
  /// such calls does not count, because the process may have been suspended.
  [[nodiscard]] bool waits_for_itself(thread_number me, steady_time now);

  // Queries.

  [[nodiscard]] std::uint64_t queue() const noexcept { return queue_; }
  [[nodiscard]] std::uint64_t memory() const noexcept { return memory_; }
  [[nodiscard]] std::uint64_t waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::uint64_t arguments() const noexcept { return arguments_; }
  [[nodiscard]] std::uint64_t results() const noexcept { return results_; }
  /// Running total of freed bytes.
  [[nodiscard]] std::uint64_t freed() const noexcept { return freed_; }

 private:
  const std::uint64_t queue_;
  const std::uint64_t memory_;
  std::uint64_t waiting_ = 0;
  std::uint64_t arguments_ = 0;
  std::uint64_t results_ = 0;
  std::uint64_t freed_ = 0;
  std::list<result_held> held_;
  // the last job that results_before() was asked about
  job_id bound_ = 0;
  std::uint64_t before_bound_ = 0;

  std::uint32_t asking_ = 0;
  steady_time gave_up_ = never;
  std::uint64_t running_ = 0;
  std::optional<job_id> held_back_;
  std::uint64_t changes_ = 0;
  std::optional<std::uint64_t> changes_seen_{};
  patient_deadline quiet_{patience, look_every};  // since the last change
};

}  // namespace penstock::schedule
