// What a Session consists of: its settings, what it publishes (board, journal), the consumer's position
// (cursor), the progress of its shutdown (ending), and everything that exists only while it runs (engine).
// Private to the files that define its functions:
//
//   session.cpp          the public face
//   session_life.cpp     start, commands, failure, end
//   session_wiring.cpp   makes the actors and connects them
//   news_of_actors.hpp   what they tell the session
//   session_progress.cpp whether the stream moves
//   session_batches.cpp  batches on their way to the consumer, or into a sink
//   session_group.cpp    a session as a rank of a group
//
// Threads: any thread may call; one at a time takes batches (only_taker refuses a second one). Actors call
// back on their own threads and touch only what is thread-safe: the board, the journal, the logs, the burst
// queues, the cursor's open(), the ending, and what mutex_ guards.
#pragma once

#include "actors/gpu_owner/batch_body.hpp"
#include "actors/gpu_owner/batch_sink.hpp"
#include "actors/protocol/actor_settings.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "actors/session/board.hpp"
#include "actors/session/ending.hpp"
#include "actors/session/group_side.hpp"
#include "actors/session/owner_inside.hpp"
#include "actors/session/process_logs.hpp"
#include "actors/session/progress_ticker.hpp"
#include "actors/session/pulse.hpp"
#include "actors/session/record_keeper.hpp"
#include "actors/session/session_actor.hpp"
#include "actors/session/session_events.hpp"
#include "actors/session/stream_cursor.hpp"
#include "actors/supervisor/owner_keeper.hpp"
#include "actors/supervisor/owner_process.hpp"
#include "actors/supervisor/supervisor.hpp"
#include "actors/supervisor/worker_processes.hpp"
#include "runtime/base/home_process.hpp"
#include "runtime/control/control_server.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/process/lifeline.hpp"
#include "runtime/telemetry/event_journal.hpp"
#include "runtime/telemetry/metrics_server.hpp"

#include <penstock/session.hpp>

#include <atomic>
#include <future>

namespace penstock {

inline steady_time now() {
  return std::chrono::steady_clock::now();
}

/// Lists the dataset before any worker exists. Empty for datasets that only the worker knows.
result<std::optional<prepared_dataset>> prepare(const config& settings);

class Session::body {
 public:
  body(config settings, session_options options);
  ~body();

  [[nodiscard]] const home_process& process() const noexcept { return process_; }
  std::optional<Batch> next();
  std::optional<Batch> next_of(std::uint64_t epoch, std::uint64_t& iteration);
  bool run_for(std::chrono::milliseconds at_most);
  void start();
  void stop(std::optional<std::chrono::milliseconds> at_most) noexcept;
  void retire() noexcept;
  void close() noexcept;
  void pause(bool paused);
  void scale(std::uint32_t workers);
  void restart(std::uint32_t worker);
  void drain(std::uint32_t worker);
  bool lift_quarantine(std::uint64_t sample, bool for_good);
  [[nodiscard]] session_status status() const;
  [[nodiscard]] run_report report();
  [[nodiscard]] std::vector<std::byte> state();
  [[nodiscard]] std::optional<std::uint64_t> beats() const { return pulse_.beats(); }

 private:
  class news_of_actors;

  // Everything that exists only while the session runs, in the order of construction; destroyed in reverse
  // (handles to actors and the objects that they share before the actor system, the io thread after what
  // lives on it).
  struct engine {
    process::lifeline lifeline;
    std::shared_ptr<arena::arena> memory;
    std::shared_ptr<arena::flight_recorders> flights;
    std::optional<prepared_dataset> dataset;
    std::shared_ptr<device::device> device;  // none when its owner has a keeper
    std::unique_ptr<protocol::actor_settings> settings;
    std::unique_ptr<caf::actor_system> system;
    std::unique_ptr<process::io_thread> io;
    std::unique_ptr<control::control_server> server;
    std::unique_ptr<telemetry::metrics_server> metrics;
    std::unique_ptr<session::progress_ticker> progress;
    std::shared_ptr<supervisor::worker_processes> processes;
    std::shared_ptr<supervisor::owner_process> owner_process;
    std::shared_ptr<session::owner_inside> owner_inside;  // one of the two, or none
    std::shared_ptr<news_of_actors> news;                 // receives the reports of everything below
    supervisor::owner_keeper_actor keeper;                // in front of either
    gpu_owner::gpu_owner_actor owner;                     // the owner itself, or its keeper
    scheduler::scheduler_actor scheduler;
    supervisor::supervisor_actor supervisor;
    session::session_actor session;
    group::member_actor member;            // in a group
    group::coordinator_actor coordinator;  // rank 0's
    std::shared_ptr<scheduler::lease_counts> leases;
    std::unique_ptr<scheduler::report_forwarder> reports;
    std::shared_ptr<scheduler::delivery_queue> deliveries = std::make_shared<scheduler::delivery_queue>();
  };

  result<void> try_start();
  void spawn_actors(engine& e);
  void spawn_owner(engine& e);
  void spawn_keeper(engine& e);
  void spawn_scheduler(engine& e);
  void spawn_supervisor(engine& e);
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
  void open_control_socket(engine& e);
  void open_record();
  void stop_readers();  // of the journal: all events have been noted
  void open_metrics(engine& e);
  void close_sockets(engine& e);
  void watch_progress(engine& e);
  [[nodiscard]] supervision::progress_facts progress_now(const engine& e) const;
  void fail(const failure& why);
  void tell(event what) { journal_->note(std::move(what)); }
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
  void wait_for_owner(bool whole);
  bool run_embedded(steady_time until);
  bool run_acknowledged(steady_time until);
  /// The GPU owner has a keeper and acknowledges what its sink takes: it lives in a process of its own, or shares a
  /// communicator with other ranks.
  [[nodiscard]] bool has_keeper() const {
    return settings_.gpu.placement == placement_rule::process || owner_is_inside();
  }
  [[nodiscard]] bool owner_is_inside() const { return session::owner_is_inside(settings_); }

  const home_process process_;
  const config settings_;
  const session_options options_;
  const std::unique_ptr<session::group_side> group_;  // null: it joins none
  std::optional<schedule::stream_state> resumed_;
  std::atomic<std::uint32_t> workers_;  // the number wanted
  steady_time begun_{};                 // the first demand; set before anything starts
  session::board board_;
  const std::shared_ptr<telemetry::event_journal> journal_ = std::make_shared<telemetry::event_journal>();
  const std::shared_ptr<batch_times> times_ = std::make_shared<batch_times>();
  session::process_logs logs_;
  std::shared_ptr<gpu_owner::hand_over> consumer_ = std::make_shared<gpu_owner::hand_over>();
  session::stream_cursor cursor_;  // the consumer's position
  session::ending ending_;         // the progress of the shutdown
  session::pulse pulse_;           // whether the actors work
  const std::shared_ptr<batch_home> home_ = std::make_shared<batch_home>();

  mutable std::mutex mutex_;  // guards the members below
  std::unique_ptr<engine> engine_;
  std::shared_future<scheduler::stream_accounts> final_accounts_;  // set once close() has requested them
  std::vector<schedule::epoch_account> epochs_told_;               // the scheduler's latest answer
  std::unique_ptr<telemetry::event_caller> listener_;
  std::unique_ptr<session::record_keeper> record_;
  std::unique_ptr<gpu_owner::batch_sink> sink_;  // of run_for() with an embedded owner; the consumer's thread
  std::atomic<bool> taking_ = false;             // a thread is in next()
  std::atomic<bool> owner_is_irreplaceable_ = false;  // losing it would end the run
};

}  // namespace penstock
