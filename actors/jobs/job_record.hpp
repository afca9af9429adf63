// One job: what was submitted and how it ended. All Job handles share it, as do the job scheduler until the
// job has ended, and the callback thread. Thread-safe; outlives the pool.
#pragma once

#include "actors/jobs/kept_result.hpp"
#include "actors/jobs/short_waits.hpp"
#include "actors/protocol/local/job_messages.hpp"
#include "runtime/arena/job_slot.hpp"
#include "runtime/base/home_process.hpp"
#include "runtime/base/upload_order.hpp"

#include <penstock/pool.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::jobs {

/// The pool's interface for Job handles.
class job_control {
 public:
  virtual ~job_control() = default;
  /// Returns whether the job will never start; meaningful only with `only_waiting`.
  virtual bool end_job(schedule::job_id job, bool only_waiting, bool at_once) = 0;
  /// Runs `callback` on the callback thread. False once that thread has stopped.
  virtual bool call_back(const std::function<void()>& callback) = 0;
  /// The thread that runs callbacks.
  [[nodiscard]] virtual schedule::job_bounds::thread_number callback_thread() const = 0;
  /// What jobs on the device wait for, once callers have held all buffers for a while.
  [[nodiscard]] virtual std::optional<std::string> who_holds_the_device() const = 0;
  /// What the calling thread waits for, if only that thread could end the wait (schedule/job_bounds).
  [[nodiscard]] virtual std::optional<std::string> waits_for_itself() const = 0;
  /// Decides whether a waiting caller polls. Null while there are many jobs, because polling would take CPU
  /// time from them.
  [[nodiscard]] virtual short_waits* polls() noexcept = 0;
};

/// job_options with the config's defaults filled in.
struct job_rules {
  nanoseconds limit{0};
  bool idempotent = true;
  bool fresh = false;
  bool to_device = false;
  bool urgent = false;
  std::optional<std::uint32_t> place{};
  bool stays_there = false;  ///< the caller gets the result in a device buffer
  std::uint32_t program = job_upload::no_program;
  std::optional<std::uint64_t> known_as{};
  bool again = false;
  std::optional<std::uint64_t> former{};
  bool lost_before = false;  ///< job_request::lost_before
  std::uint32_t attempts_before = 0;
  std::uint32_t inputs = 1;
};

/// A job's row, in a slot as the session maps it.
struct leased_row {
  std::span<std::byte> slot;
  std::uint32_t generation = 0;
  std::uint32_t row = 0;
  std::uint32_t attempt = 1;
};

class job_record : public std::enable_shared_from_this<job_record> {
 public:
  job_record(std::uint64_t number, std::string function, Argument argument, job_rules rules,
             std::weak_ptr<job_control> control, const home_process& home = {})
      : number_(number),
        function_(std::move(function)),
        argument_(std::move(argument)),
        rules_(rules),
        control_(std::move(control)),
        home_(home) {}

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// The number that messages to users give this job.
  [[nodiscard]] std::uint64_t known_as() const noexcept { return rules_.known_as.value_or(number_); }
  [[nodiscard]] const home_process& home() const noexcept { return home_; }
  [[nodiscard]] const std::string& function() const noexcept { return function_; }
  /// What the job was doing when it last killed a worker, in the job's own words; its function if it gave
  /// none. Only for the scheduler.
  [[nodiscard]] const std::string& work() const noexcept { return work_.empty() ? function_ : work_; }
  void note_work(std::string work) noexcept { work_ = std::move(work); }
  [[nodiscard]] const job_rules& rules() const noexcept { return rules_; }
  /// Only for the scheduler, and only until the job has ended.
  [[nodiscard]] std::span<const std::byte> argument() const noexcept { return argument_.bytes(); }
  /// The argument for a reader on another thread, which may outlive the job.
  [[nodiscard]] Argument shared_argument() const { return argument_; }

  /// Records where the latest attempt runs.
  void leased_to(std::shared_ptr<const lent_place> place, leased_row where);

  // The pool calls each of these once.
  void reached_device() noexcept { at_device_ = true; }
  void succeed(std::shared_ptr<kept_result> result, std::uint32_t attempts);
  void fail(job_failure why);

  // Handles call these.
  [[nodiscard]] bool wait_until(steady_time deadline) const;
  /// Waits for the end. Throws error (errc::usage) if the job cannot end before this thread frees results or
  /// buffers.
  void wait() const;
  /// The calling thread becomes responsible for freeing the result.
  void hand_over() const;
  /// Waits for the end. Throws job_error if the job failed, and error (errc::usage) on a second call.
  std::shared_ptr<kept_result> take();
  /// Why the job failed; empty if it has a result or has not ended.
  [[nodiscard]] std::optional<job_failure> why() const;
  /// The number of times the job was started. Until it has ended, the row of its latest attempt shows this.
  [[nodiscard]] std::uint32_t attempts() const;
  /// How long the latest attempt ran, or has run until `now`. Empty if none has begun, and once the job has
  /// ended.
  [[nodiscard]] std::optional<nanoseconds> ran_for(steady_time now) const;
  /// Has no effect and returns false in a forked child, where destructors of the caller's objects may call it.
  bool end(bool only_waiting, bool at_once);
  void then(std::function<void(Job)> callback);
  /// Calls `ended` on the thread that ends the job, or at once if it has ended. `ended` must neither block
  /// nor run the caller's code.
  void watch(std::function<void()> ended);

 private:
  void over(std::unique_lock<std::mutex> hold);
  void call(const std::function<void(Job)>& callback);
  [[nodiscard]] std::optional<arena::job_reading> latest_begun() const;
  void wait_until_done(std::unique_lock<std::mutex>& hold) const;
  void poll(steady_time deadline) const;
  [[nodiscard]] std::optional<std::string> why_in_vain() const;
  [[nodiscard]] schedule::job_bounds::thread_number number_of_callback_thread() const;

  const std::uint64_t number_;
  const std::string function_;
  std::string work_;
  Argument argument_;
  const job_rules rules_;
  const std::weak_ptr<job_control> control_;
  const home_process home_;
  std::atomic<bool> at_device_ = false;

  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  mutable std::uint32_t waiting_ = 0;
  std::atomic<bool> done_ = false;  // set with mutex_ held
  bool taken_ = false;
  std::uint32_t attempts_ = 0;
  struct {
    std::shared_ptr<const lent_place> place;  // null: no slot so far
    leased_row row;
  } latest_;
  std::optional<job_failure> failure_;
  std::shared_ptr<kept_result> result_;
  std::vector<std::function<void(Job)>> callbacks_;
  schedule::job_bounds::thread_number callback_thread_ = 0;
  std::function<void()> watcher_;
};

/// Lets the runtime create handles.
}  // namespace penstock::jobs

namespace penstock {

struct job_access {
  static Job make(std::shared_ptr<jobs::job_record> record) {
    Job job;
    job.record_ = std::move(record);
    return job;
  }
  static const std::shared_ptr<jobs::job_record>& record_of(const Job& job) { return job.record_; }
};

}  // namespace penstock
