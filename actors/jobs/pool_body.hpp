// What a Pool adds to a run (actors/host/run.hpp): its bounds (admission), its jobs, and what exists only while it runs
// (engine). Private to pool.cpp, pool_life.cpp, pool_jobs.cpp and pool_wiring.cpp.
//
// Threads: any thread may call. Actors call back on their own threads and may touch only thread-safe members:
// board, journal, logs, admission, ending, counts, and what mutex_ guards.
#pragma once

#include "actors/caf/caf.hpp"
#include "actors/host/run.hpp"
#include "actors/jobs/admission.hpp"
#include "actors/jobs/awaited_by_consumer.hpp"
#include "actors/jobs/callback_thread.hpp"
#include "actors/jobs/device_side.hpp"
#include "actors/jobs/job_counts.hpp"
#include "actors/jobs/job_record.hpp"
#include "actors/jobs/job_scheduler.hpp"
#include "actors/jobs/pool_host.hpp"
#include "actors/jobs/report_forwarder.hpp"
#include "actors/remote/host_hub.hpp"
#include "actors/remote/hosts_setup.hpp"
#include "actors/supervisor/supervisor.hpp"

#include <penstock/pool.hpp>

#include <atomic>
#include <shared_mutex>
#include <thread>

namespace penstock {

class Pool::body final : public host::run,
                         public jobs::job_control,
                         public jobs::job_listener,
                         public jobs::pool_host_listener,
                         public std::enable_shared_from_this<Pool::body> {
 public:
  body(config settings, pool_options options);
  /// Requires that close() has been called.
  ~body() override = default;

  /// Starts the workers. Not in the constructor: handles need shared_from_this().
  void start();
  Job submit(std::string_view function, Argument argument, const job_options& options, nanoseconds patience);
  std::optional<Job> try_submit(std::string_view function, Argument argument, const job_options& options);
  /// A job that has failed as too_large before it was queued.
  Job refuse_job(std::string_view function, const job_options& options, std::string why);
  bool finish(nanoseconds at_most);
  void stop(std::optional<std::chrono::milliseconds> at_most, std::string_view by) noexcept override;
  void close() noexcept;
  void await_batch(std::uint64_t job, batch_mark doing) noexcept;
  void batch_came() noexcept;
  void pass_is_at(std::uint64_t epoch, std::uint64_t done, std::uint64_t expected) noexcept { board_.loader_pass(epoch, done, expected); }
  void batch_taken(std::uint64_t epoch, std::uint64_t samples, std::uint64_t left_out) noexcept;
  void dataset_has(std::uint64_t samples) noexcept { board_.dataset_has(samples); }
  void batch_lost(lost_batch lost) noexcept;
  void batch_was_slow(const slow_batch& batch) noexcept;
  void judge(std::string_view function, job_verdict verdict) noexcept { counts_.judge(function, verdict); }
  void sample_failed(const loader_sample& which, std::string_view error, std::string text, std::string_view traceback) noexcept;
  void sample_quarantined(const loader_sample& which, std::vector<std::string> causes, bool known) noexcept;
  void input_raised(std::uint64_t job, std::uint64_t index, std::string_view error, std::string_view traceback) noexcept;
  void warn(std::string_view text) noexcept;
  void publish(std::uint64_t number, int file);
  void withdraw(std::uint64_t number) noexcept;
  [[nodiscard]] pool_statistics statistics() const;
  [[nodiscard]] run_report report() const;
  [[nodiscard]] const config& settings() const noexcept { return settings_; }

 private:
  // The part of a run that feeds jobs to its workers.
  struct engine : run::engine {
    std::unique_ptr<jobs::device_side> device;  // may be null
    jobs::job_scheduler_actor scheduler;
    jobs::pool_host_actor host;
    std::unique_ptr<jobs::report_forwarder> reports;
    std::shared_ptr<hosts::host_hub> hub;  // none without [loader.hosts]
  };

  bool end_job(schedule::job_id job, bool only_waiting, bool at_once) override;
  bool call_back(const std::function<void()>& callback) override;
  [[nodiscard]] schedule::job_bounds::thread_number callback_thread() const override {
    return callbacks_.number();
  }
  [[nodiscard]] std::optional<std::string> who_holds_the_device() const override;
  [[nodiscard]] std::optional<std::string> waits_for_itself() const override {
    return admission_->waits_for_itself(now());
  }
  [[nodiscard]] jobs::short_waits* polls() noexcept override { return few_jobs() ? &short_waits_ : nullptr; }
  void gave_up(const failure& why) override;
  void counted(const tally& ended, std::span<const function_counts> functions, const under_way& now, std::uint64_t stale_dropped) override;
  void functions_named(const std::vector<std::string>& names) override;
  void callers_notified(std::uint64_t jobs) override;
  void job_failed(std::uint64_t job, const std::string& work, const job_failure& why, std::uint32_t inputs) override;
  void leases_lost(std::span<const schedule::lost_lease> leases) override;
  void leased_again(std::uint64_t job, steady_time now) override;
  void waits_for_callers(const std::string& what) override;

  void job_raised(std::uint64_t job, const std::string& work, const job_failure& why);
  void tell_raised(const std::string& who, std::string_view what, std::string_view traceback);
  void tell_after_deaths(event what);
  result<void> try_start();
  void end_actors(engine& e);
  result<void> prepare_hosts();
  void make_hub(engine& e);
  result<void> spawn_actors(engine& e);
  result<void> spawn_device(engine& e);
  void result_left(const lease_ref& lease);
  void memory_freed();
  [[nodiscard]] run::engine* running() const override { return engine_.get(); }
  void pause_scheduler(bool paused) override;
  void add_verbs(host::session_controls& controls, run::engine& of_run) override;
  [[nodiscard]] result<void> check_room(std::uint32_t more_workers) const override;
  void worker_died(const death_report& death) override {
    host_board_->worker_died(death);
    run::worker_died(death);
  }
  void add_to_status(session_status& status) const override {
    status.jobs = statistics();
    host_board_->add_to(status);
  }
  void add_to_progress(supervision::progress_facts& facts, const run::engine& e) const override;
  [[nodiscard]] std::vector<slow_sample> slowest_samples(steady_time when) const override { return slowest_.at(when); }
  [[nodiscard]] arena::geometry shape() const;
  [[nodiscard]] jobs::job_rules rules_of(const job_options& options) const;
  [[nodiscard]] schedule::submitter submitter_of(const jobs::job_rules& rules) const;
  [[nodiscard]] Job enter(std::string_view function, Argument argument, jobs::job_rules rules);
  void announce_submissions();
  [[nodiscard]] bool few_jobs() const noexcept;
  void cancel_everything(const failure& why);
  void tell_closed();
  void fail_orphans(const std::vector<std::shared_ptr<jobs::job_record>>& orphans);

  jobs::short_waits short_waits_{std::thread::hardware_concurrency()};
  std::mutex submit_mutex_;
  const bool judged_;
  jobs::job_counts counts_;
  const std::shared_ptr<jobs::admission> admission_;
  const std::shared_ptr<jobs::submission_queue> submissions_ = std::make_shared<jobs::submission_queue>();
  const std::shared_ptr<jobs::release_queue> released_ = std::make_shared<jobs::release_queue>();
  jobs::callback_thread callbacks_;
  const bool of_batches_;
  [[nodiscard]] const char* log_part() const noexcept { return of_batches_ ? "loader" : "jobs"; }
  jobs::awaited_by_consumer awaited_;
  penstock::slowest_samples slowest_;  // the slowest samples of a data loader

  // For loader hosts. prepare_hosts() writes these before the engine exists.
  hosted_program hosted_;
  std::shared_ptr<hosts::shared_program> shared_program_;  // null: no hosts
  std::unique_ptr<const hosts::hosts_setup> hosts_;
  const std::shared_ptr<hosts::host_board> host_board_ = std::make_shared<hosts::host_board>();

  /// How many more samples of lost batches events may list: long lists would push deaths out of the record. Used by the loop's thread.
  std::size_t listable_samples_ = 32'768;
  std::uint64_t poisoned_ = 0;            // number of poisoned jobs; used only by the scheduler's callbacks
  std::atomic<std::uint64_t> raised_{0};  // number of exceptions

  std::mutex close_mutex_;
  std::shared_mutex engine_stays_;  // held shared to keep the engine from being destroyed; lock before mutex_
  std::unique_ptr<engine> engine_;  // guarded by mutex_
};

}  // namespace penstock
