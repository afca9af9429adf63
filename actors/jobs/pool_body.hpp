// The parts of a Pool: its bounds (admission), what it publishes (board, journal), the progress of its
// shutdown (ending), and everything that exists only while it runs (engine). Private to pool.cpp,
// pool_life.cpp and pool_wiring.cpp.
//
// Threads: any thread may call. Actors call back on their own threads and may touch only thread-safe members:
// board, journal, logs, admission, ending, counts, and what mutex_ guards.
#pragma once

#include "actors/jobs/admission.hpp"
#include "actors/jobs/callback_thread.hpp"
#include "actors/jobs/device_side.hpp"
#include "actors/jobs/job_counts.hpp"
#include "actors/jobs/job_record.hpp"
#include "actors/jobs/job_scheduler.hpp"
#include "actors/jobs/pool_host.hpp"
#include "actors/jobs/report_forwarder.hpp"
#include "actors/protocol/actor_settings.hpp"
#include "actors/session/board.hpp"
#include "actors/session/ending.hpp"
#include "actors/session/process_logs.hpp"
#include "actors/session/progress_ticker.hpp"
#include "actors/session/record_keeper.hpp"
#include "actors/session/session_events.hpp"
#include "actors/supervisor/supervisor.hpp"
#include "actors/supervisor/worker_processes.hpp"
#include "runtime/base/home_process.hpp"
#include "runtime/control/control_server.hpp"
#include "runtime/process/lifeline.hpp"
#include "runtime/telemetry/event_journal.hpp"
#include "runtime/telemetry/metrics_server.hpp"

#include <penstock/pool.hpp>

#include <atomic>
#include <shared_mutex>
#include <thread>

namespace penstock {

inline steady_time now_steady() {
  return std::chrono::steady_clock::now();
}

class Pool::body final : public jobs::job_control,
                         public supervisor::supervisor_news,
                         public jobs::job_news,
                         public jobs::host_news,
                         public std::enable_shared_from_this<Pool::body> {
 public:
  body(config settings, pool_options options);
  /// Requires that close() has been called.
  ~body() override = default;

  /// Starts the workers. Not in the constructor: handles need shared_from_this().
  void start();
  [[nodiscard]] const home_process& process() const noexcept { return process_; }
  Job submit(std::string_view function, Argument argument, const job_options& options, nanoseconds patience);
  std::optional<Job> try_submit(std::string_view function, Argument argument, const job_options& options);
  /// A job that has failed as too_large before it was queued.
  Job refuse_job(std::string_view function, std::string why);
  bool finish(nanoseconds at_most);
  void stop(std::optional<std::chrono::milliseconds> at_most) noexcept;
  void close() noexcept;
  void pause(bool paused);
  void scale(std::uint32_t workers);
  void restart(std::uint32_t worker);
  void drain(std::uint32_t worker);
  [[nodiscard]] pool_statistics statistics() const;
  [[nodiscard]] session_status status() const;
  [[nodiscard]] run_report report() const;
  [[nodiscard]] const config& settings() const noexcept { return settings_; }

 private:
  // In order of construction; destroyed in reverse.
  struct engine {
    process::lifeline lifeline;
    std::shared_ptr<arena::arena> memory;
    std::shared_ptr<arena::flight_recorders> flights;
    std::unique_ptr<protocol::actor_settings> settings;
    std::unique_ptr<caf::actor_system> system;
    std::unique_ptr<protocol::run_here> here;
    std::unique_ptr<process::io_thread> io;
    std::unique_ptr<control::control_server> server;
    std::unique_ptr<telemetry::metrics_server> metrics;
    std::unique_ptr<session::progress_ticker> progress;
    std::shared_ptr<supervisor::worker_processes> processes;
    std::unique_ptr<jobs::device_side> device;  // or none
    jobs::job_scheduler_actor scheduler;
    supervisor::supervisor_actor supervisor;
    jobs::pool_host_actor host;
    std::shared_ptr<scheduler::lease_counts> leases;
    std::unique_ptr<jobs::report_forwarder> reports;
  };

  bool end_job(schedule::job_id job, bool only_waiting, bool at_once) override;
  bool call_back(const std::function<void()>& callback) override;
  [[nodiscard]] schedule::job_bounds::thread_number callback_thread() const override {
    return callbacks_.number();
  }
  [[nodiscard]] std::optional<std::string> who_holds_the_device() const override;
  [[nodiscard]] std::optional<std::string> waits_for_itself() const override {
    return admission_->waits_for_itself(now_steady());
  }
  [[nodiscard]] jobs::short_waits* polls() noexcept override { return few_jobs() ? &short_waits_ : nullptr; }
  void workers_changed(const std::vector<worker_status>& workers, bool degraded, std::uint32_t started,
                       std::uint32_t restarts) override;
  void worker_died(const death_report& death) override;
  void gave_up(const failure& why) override;
  void pool_closed() override;
  void jobs_ended(const tally& some, std::span<const function_counts> functions) override;
  void functions_named(const std::vector<std::string>& names) override;
  void callers_notified(std::uint64_t jobs) override;
  void job_failed(std::uint64_t job, const std::string& function, const job_failure& why) override;
  void counted(std::uint64_t running, std::uint64_t stale_dropped) override;
  void waits_for_callers(const std::string& what) override;

  result<void> try_start();
  result<void> spawn_actors(engine& e);
  result<void> spawn_device(engine& e);
  void result_left(const lease_ref& lease);
  void memory_freed();
  void open_control_socket(engine& e);
  void open_record();
  void open_metrics(engine& e);
  void watch_progress(engine& e);
  [[nodiscard]] supervision::progress_facts progress_now() const;
  [[nodiscard]] arena::geometry shape() const;
  [[nodiscard]] jobs::job_rules rules_of(const job_options& options) const;
  [[nodiscard]] schedule::submitter submitter_of(const jobs::job_rules& rules) const;
  [[nodiscard]] Job enter(std::string_view function, Argument argument, const jobs::job_rules& rules);
  void announce_submissions();
  [[nodiscard]] bool few_jobs() const noexcept;
  void cancel_everything(const failure& why);
  void fail_orphans(const std::vector<std::shared_ptr<jobs::job_record>>& orphans);
  void tell(event what) { journal_->note(std::move(what)); }

  const home_process process_;
  const config settings_;
  const pool_options options_;
  std::atomic<std::uint32_t> workers_;
  jobs::short_waits short_waits_{std::thread::hardware_concurrency()};
  std::mutex submit_mutex_;
  jobs::job_counts counts_;
  const std::shared_ptr<jobs::admission> admission_;
  const std::shared_ptr<jobs::submission_queue> submissions_ = std::make_shared<jobs::submission_queue>();
  const std::shared_ptr<jobs::release_queue> released_ = std::make_shared<jobs::release_queue>();
  session::board board_;
  const std::shared_ptr<telemetry::event_journal> journal_ = std::make_shared<telemetry::event_journal>();
  session::process_logs logs_;
  session::worker_watch watch_;  // used only by callbacks of the supervisor
  session::ending ending_;
  jobs::callback_thread callbacks_;

  std::uint64_t poisoned_ = 0;  // used only by callbacks of the scheduler

  std::mutex close_mutex_;
  std::shared_mutex engine_stays_;  // shared: the engine is not destroyed; before mutex_
  mutable std::mutex mutex_;        // guards the members below
  std::unique_ptr<engine> engine_;
  std::unique_ptr<telemetry::event_caller> listener_;
  std::unique_ptr<session::record_keeper> record_;
};

}  // namespace penstock
