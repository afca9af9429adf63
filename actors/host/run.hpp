// A run of worker processes, as sessions and pools host it: workers under a supervisor, the control socket, the metrics port, the
// record, the events, and the commands that mean the same for both. Session::body and Pool::body derive from it and add what they
// feed to the workers.
//
// Threads: commands and queries come from any thread. The supervisor calls the listener functions one at a time, on the
// thread that runs the supervisor.
#pragma once

#include "actors/caf/caf.hpp"
#include "actors/host/board.hpp"
#include "actors/host/control_verbs.hpp"
#include "actors/host/ending.hpp"
#include "actors/host/limit_meter.hpp"
#include "actors/host/process_logs.hpp"
#include "actors/host/progress_ticker.hpp"
#include "actors/host/record_keeper.hpp"
#include "actors/host/run_events.hpp"
#include "actors/host/tuning.hpp"
#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/lease_counts.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "actors/supervisor/worker_processes.hpp"
#include "runtime/arena/arena.hpp"
#include "runtime/base/home_process.hpp"
#include "runtime/base/pauser.hpp"
#include "runtime/base/work_kind.hpp"
#include "runtime/control/control_server.hpp"
#include "runtime/process/io_thread.hpp"
#include "runtime/process/lifeline.hpp"
#include "runtime/process/worker_cores.hpp"
#include "runtime/telemetry/event_journal.hpp"
#include "runtime/telemetry/metrics_server.hpp"

#include <penstock/config.hpp>
#include <penstock/session.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::host {

/// How long the shutdown of a run may take if the run has failed, or is destroyed without stop().
inline constexpr std::chrono::milliseconds end_of_dropped{500};

/// How output names a session or a pool, and the options that both have.
struct run_kind {
  std::string_view (*placement)(const config& settings) = nullptr;  ///< where the GPU owner runs: "process" or "embedded"
  std::string_view progresses;                                      ///< "stream", "pool" or "loader": what stalls
  work_kind work = work_kind::samples;
  bool control_socket = true;
  session_scope ends = session_scope::session;
  std::function<void(const event&)> on_event;
  std::map<std::string, std::string> files{};  ///< paths of files that the program writes, by kind
};

class run : public supervisor::supervisor_listener {
 public:
  run(const run&) = delete;
  run& operator=(const run&) = delete;

  [[nodiscard]] const home_process& process() const noexcept { return process_; }
  /// `by`: who asked; empty: the program.
  virtual void stop(std::optional<std::chrono::milliseconds> at_most, std::string_view by) noexcept = 0;
  void fail(std::string_view why, std::optional<std::chrono::milliseconds> at_most) noexcept {
    ending_.failed_by(why);
    stop(at_most, why);
  }
  /// False: the run was in that state already. `by`: who asked.
  bool pause(bool paused, pauser by = pauser::program);
  /// Sets the number of workers, and switches tuning off.
  void scale(std::uint32_t workers);
  /// Tunes the number of workers from now on.
  void scale_automatically();
  /// `at_once`: the worker does not finish the work that it holds.
  void restart(std::uint32_t worker, bool at_once = false);
  void drain(std::uint32_t worker);
  [[nodiscard]] session_status status() const;

 protected:
  // Everything that exists only while workers run, in the order of construction; destroyed in reverse. The engines of
  // Session and Pool derive from it, so that their handles to actors, and the objects that these share, are destroyed before
  // the actor system.
  struct engine {
    process::lifeline lifeline;
    std::shared_ptr<arena::arena> memory;
    std::shared_ptr<arena::flight_recorders> flights;
    std::unique_ptr<actors::actor_system> system;
    std::unique_ptr<process::io_thread> io;
    std::unique_ptr<control::control_server> server;
    std::unique_ptr<telemetry::metrics_server> metrics;
    std::unique_ptr<progress_ticker> progress;
    std::unique_ptr<process::ticker> limits;
    std::shared_ptr<supervisor::worker_processes> processes;
    supervisor::supervisor_actor supervisor;
    std::shared_ptr<scheduler::lease_counts> leases;
    remote_times_of remote_times{};  // called on the io thread; empty: there are no loader hosts

    /// Creates the lifeline, the arena, and this number of flight recorders. `memory_node`: where slots are
    /// allocated, if there is room.
    result<void> create_shared(std::uint32_t recorders, std::optional<int> memory_node);
    /// Creates the actor system and the io thread. Call on a fresh thread.
    void create_threads();
  };

  [[nodiscard]] static steady_time now() { return std::chrono::steady_clock::now(); }

  run(config settings, run_kind kind);
  ~run();

  /// Records and announces the start of the run, and opens its record. Empty: it had already started, or was stopped
  /// before.
  std::optional<steady_time> begin(std::string_view what);
  void tell(event what) { journal_->note(std::move(what)); }
  void tell_of_worker(event_kind kind, std::uint32_t worker, const std::string& text);
  /// The control socket, the metrics port and the watch for stalls.
  void open_sockets(engine& e);
  /// Call on any thread but the io thread.
  void close_sockets(engine& e);
  /// Stops the readers of the journal. Call when all events are in it.
  void stop_readers();
  /// Gives the workers this long to end. Returns false if there are no workers.
  bool close_workers(nanoseconds at_most);

  void workers_changed(const std::vector<worker_status>& workers, bool degraded, std::uint32_t started,
                       std::uint32_t restarts) override;
  void worker_died(const death_report& death) override;
  void pool_closed() override { ending_.pool_gone(); }

  const home_process process_;
  const config settings_;
  const run_kind kind_;
  const std::map<std::string, std::string> files_;  // by kind
  const process::worker_cores worker_cores_;
  const std::uint32_t cores_;           // number of cores that workers may use
  std::atomic<std::uint32_t> workers_;  // the number wanted
  board board_;
  tuning tuning_;
  const std::shared_ptr<telemetry::event_journal> journal_ = std::make_shared<telemetry::event_journal>();
  process_logs logs_;
  ending ending_;             // the progress of the shutdown
  mutable std::mutex mutex_;  // guards the engine, which the derived class holds, and the members below
  std::unique_ptr<telemetry::event_caller> listener_;
  std::unique_ptr<record_keeper> record_;

 private:
  // What a session or a pool adds.
  /// The engine; null before the start and after the end. Called with mutex_ held, like the next two.
  [[nodiscard]] virtual engine* running() const = 0;
  virtual void pause_scheduler(bool paused) = 0;
  /// Refuses if there is not enough memory for that many more workers.
  [[nodiscard]] virtual result<void> check_room(std::uint32_t more_workers) const = 0;
  virtual void add_to_status(session_status& /*status*/) const {}
  virtual void add_to_metrics(telemetry::metrics_facts& /*facts*/) const {}
  virtual void add_to_progress(supervision::progress_facts& /*facts*/, const engine& /*e*/) const {}
  virtual void add_verbs(session_controls& /*controls*/, engine& /*e*/) {}
  /// When batches passed each stage; null in a pool.
  [[nodiscard]] virtual const batch_times* times() const { return nullptr; }
  /// The slowest samples of the last minutes, the slowest first.
  [[nodiscard]] virtual std::vector<slow_sample> slowest_samples(steady_time when) const { return times() == nullptr ? std::vector<slow_sample>() : times()->slowest(when); }

  /// What was published, without the facts that only the flight recorders contain.
  [[nodiscard]] session_status told_status() const;
  /// What the control socket and the metrics show: workers, stall and advice of one moment. Call on the io thread.
  [[nodiscard]] supervision::progress_facts shown_by(const engine& e) const;
  [[nodiscard]] std::vector<batch_passage> batches_under_way() const;
  [[nodiscard]] supervision::progress_facts progress_of(const engine& e) const;
  [[nodiscard]] std::string metrics_page(const engine& e) const;
  /// Valid once the run has begun: its start time, and the id of its record.
  [[nodiscard]] std::chrono::system_clock::time_point started() const;
  [[nodiscard]] std::string id() const;
  [[nodiscard]] session_controls controls();
  [[nodiscard]] limits_told limits() const;
  /// The advice that fits this status.
  [[nodiscard]] limits_told limits_at(session_status status) const;
  void change_workers(std::uint32_t workers, const std::string& text);
  void tune(const supervision::progress_facts& facts, const std::vector<worker_look>& workers);
  void open_record();
  void open_control_socket(engine& e);
  void open_metrics(engine& e);
  void watch_progress(engine& e);
  void measure_limits(engine& e);

  worker_watch watch_;  // used only by the supervisor's calls
};

}  // namespace penstock::host
