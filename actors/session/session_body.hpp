// What a Session adds to a run (actors/host/run.hpp): the stream, its group, the consumer's position
// (cursor), and what exists only while it runs (engine).
// Private to the files that define its functions:
//
//   session.cpp          the public face
//   session_life.cpp     start, failure, end
//   session_accounts.cpp reports and states
//   session_wiring.cpp   makes the actors and connects them
//   session_listener.hpp   what they report to the session
//   session_batches.cpp  batches on their way to the consumer, or into a sink
//   session_group.cpp    a session as a rank of a group
//
// Threads: any thread may call; one at a time takes batches (only_taker refuses a second one). Actors call
// back on their own threads and touch only what is thread-safe: the board, the journal, the logs, the burst
// queues, the cursor's open(), the ending, and what mutex_ guards.
#pragma once

#include "actors/caf/caf.hpp"
#include "actors/gpu_owner/batch_body.hpp"
#include "actors/gpu_owner/batch_sink.hpp"
#include "actors/host/run.hpp"
#include "actors/remote/dataset_program.hpp"
#include "actors/remote/host_hub.hpp"
#include "actors/remote/hosts_setup.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "actors/session/group_side.hpp"
#include "actors/session/owner_inside.hpp"
#include "actors/session/pulse.hpp"
#include "actors/session/session_actor.hpp"
#include "actors/session/stream_cursor.hpp"
#include "actors/supervisor/owner_keeper.hpp"
#include "actors/supervisor/owner_process.hpp"
#include "actors/supervisor/supervisor.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/process/shared_files.hpp"

#include <penstock/session.hpp>

#include <atomic>
#include <future>

namespace penstock {

/// Lists the dataset before any worker exists. Empty for datasets that only the worker knows. `made`: as for prepare_stream.
result<std::optional<prepared_dataset>> prepare(const config& settings, std::vector<unique_fd> made = {});

class Session::body final : public host::run {
 public:
  body(config settings, session_options options);
  ~body();

  std::optional<Batch> next();
  std::optional<Batch> next_of(std::uint64_t epoch, std::uint64_t& iteration);
  bool run_for(std::chrono::milliseconds at_most);
  void start();
  void stop(std::optional<std::chrono::milliseconds> at_most, std::string_view by) noexcept override;
  using run::fail;
  void retire() noexcept;
  void close() noexcept;
  bool lift_quarantine(std::uint64_t sample, bool for_good);
  [[nodiscard]] run_report report();
  [[nodiscard]] std::vector<std::byte> state();
  [[nodiscard]] std::optional<std::uint64_t> beats() const { return pulse_.beats(); }
  void expect_lost_processes();
  void processes_lost(const std::vector<lost_process_report>& lost);

 private:
  class session_listener;

  // The part of a run that feeds a stream to a GPU owner.
  struct engine : run::engine {
    output_lock sink_lock;  // held until the process that writes to the sink has ended
    std::optional<prepared_dataset> dataset;
    std::optional<hosts::described_program> custom;  // set instead of `dataset` if loader hosts run the worker program, too
    process::shared_files listing;  // gives the dataset's index to the other ranks on this host
    std::shared_ptr<device::device> device;  // null if the GPU owner has a keeper
    std::shared_ptr<supervisor::owner_process> owner_process;
    std::shared_ptr<session::owner_inside> owner_inside;  // at most one of owner_process and owner_inside is set
    std::shared_ptr<hosts::host_hub> hub;                 // none without [loader.hosts]
    std::shared_ptr<session_listener> listener;                // receives the reports of everything below
    supervisor::owner_keeper_actor keeper;                // the keeper of the owner in owner_process or owner_inside
    gpu_owner::gpu_owner_actor owner;                     // the owner itself, or its keeper
    scheduler::scheduler_actor scheduler;
    session::session_actor session;
    group::member_actor member;            // in a group
    group::coordinator_actor coordinator;  // rank 0's
    std::unique_ptr<scheduler::report_forwarder> reports;
    std::shared_ptr<scheduler::delivery_queue> deliveries = std::make_shared<scheduler::delivery_queue>();
  };

  result<void> try_start();
  result<std::optional<prepared_dataset>> prepare_with_other_ranks(engine& e);
  void spawn_actors(engine& e);
  void spawn_owner(engine& e);
  void spawn_keeper(engine& e);
  void spawn_scheduler(engine& e);
  void spawn_supervisor(engine& e);
  result<void> describe_for_hosts(engine& e);
  void make_hub(engine& e, const hosts::hosts_setup& setup);
  void spawn_session_actor(engine& e);
  void spawn_group(engine& e);
  bool ask_group_to_stop();
  template <class Message>
  void tell_member(Message what);
  void tell_group_of_failure(const std::string& why);
  void tell_group_of_earlier_failure();
  void tell_group_of_end();
  void leave_group();
  static void drop_group(engine& e);
  void end_with_group();
  gpu_owner::hand_over::taken take_through_gate();
  gpu_owner::hand_over::taken take_from_queue();
  [[nodiscard]] run::engine* running() const override { return engine_.get(); }
  void pause_scheduler(bool paused) override;
  [[nodiscard]] result<void> check_room(std::uint32_t more_workers) const override;
  void worker_died(const death_report& death) override {
    host_board_->worker_died(death);
    run::worker_died(death);
  }
  void add_to_status(session_status& status) const override { host_board_->add_to(status); }
  void add_to_metrics(telemetry::metrics_facts& facts) const override;
  void add_to_progress(supervision::progress_facts& facts, const run::engine& e) const override;
  void add_verbs(host::session_controls& controls, run::engine& e) override;
  [[nodiscard]] const batch_times* times() const override { return times_.get(); }
  void gave_up(const failure& why) override { fail(why); }
  void fail(const failure& why);
  void tell_ended(run_outcome how);
  void end_within(std::optional<std::chrono::milliseconds> at_most) noexcept;
  std::optional<Batch> take();
  std::optional<Batch> take_of(std::uint64_t epoch, bool from_its_first);
  void restart_owner(engine& e);
  std::optional<Batch> hand_out(gpu_owner::ready_batch ready, steady_time demanded);
  void hear_of_deaths();
  std::optional<Batch> end_of_stream();
  void seek(schedule::stream_range range);
  [[nodiscard]] static std::shared_future<scheduler::stream_accounts> ask_for_accounts(const engine& e,
                                                                                       bool epochs);
  result<scheduler::stream_accounts> accounts(bool epochs);
  [[nodiscard]] schedule::stream_state state_before_the_stream() const;
  void wait_for_pool();
  [[nodiscard]] bool wait_for_owner(bool whole);
  bool run_embedded(steady_time until);
  bool run_acknowledged(steady_time until);
  /// The GPU owner has a keeper and acknowledges what its sink takes: it has its own process, or shares a
  /// communicator with other ranks.
  [[nodiscard]] bool has_keeper() const {
    return settings_.gpu.placement == placement_rule::process || owner_is_inside();
  }
  [[nodiscard]] bool owner_is_inside() const { return session::owner_is_inside(settings_); }

  const session_options options_;
  const std::unique_ptr<session::group_side> group_;  // null: the session joins none
  std::optional<schedule::stream_state> resumed_;
  steady_time begun_{};  // when the consumer first asked for work; set before anything starts
  const std::shared_ptr<batch_times> times_ = std::make_shared<batch_times>();
  std::shared_ptr<gpu_owner::hand_over> consumer_ = std::make_shared<gpu_owner::hand_over>();
  session::stream_cursor cursor_;  // the consumer's position
  session::pulse pulse_;           // whether the actors work
  const std::shared_ptr<batch_home> home_ = std::make_shared<batch_home>();
  const std::shared_ptr<hosts::host_board> host_board_ = std::make_shared<hosts::host_board>();

  // Guarded by mutex_:
  std::unique_ptr<engine> engine_;
  std::shared_future<scheduler::stream_accounts> final_accounts_;  // set once close() has requested them
  std::vector<schedule::epoch_account> epochs_told_;               // the scheduler's latest answer
  std::unique_ptr<gpu_owner::batch_sink> sink_;  // for run_for() with an embedded owner; used by the consumer's thread
  std::atomic<bool> taking_ = false;             // a thread is in next()
  std::atomic<bool> owner_is_irreplaceable_ = false;  // losing it would end the run
  std::atomic<bool> given_up_ = false;                // makes a start that waits for a worker program stop waiting
};

}  // namespace penstock
