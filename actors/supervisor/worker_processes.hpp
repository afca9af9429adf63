// Starts and signals the worker processes for the supervisor. Everything happens on the session's io thread,
// in order, except spawning, which may wait for a file system and has its own thread. Any thread may call.
// The io thread passes the processes' events and messages to the actors.
#pragma once

#include "actors/protocol/link.hpp"
#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "actors/supervisor/child_starter.hpp"
#include "actors/supervisor/linked_child.hpp"
#include "actors/supervisor/remote_workers.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/io_thread.hpp"
#include "runtime/process/worker_cores.hpp"
#include "runtime/process/worker_template.hpp"
#include "runtime/supervision/restart_policy.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::supervisor {

/// How to start every worker.
struct worker_program {
  std::vector<std::string> command;      ///< program, resolved by find_program, and arguments
  std::vector<std::string> environment;  ///< the complete environment
  int lifeline = -1;                     ///< descriptors to pass on
  int arena = -1;
  int flight = -1;
  std::vector<int> indexes{};  ///< descriptors of the datasets' indexes; -1: none
  process::worker_cores cores{};
  bool parcels = false;  ///< in a pool: each worker gets a socket for large arguments and results
  bool forked = false;   ///< the program can be a template, which forks the workers
  supervision::restart_settings template_restarts{};
  std::shared_ptr<remote_workers> remote{};  ///< null: every worker runs on this machine
};

/// The workers' environment: ours, overridden by `extra`. The GPU is hidden in any case.
std::vector<std::string> worker_environment(const std::map<std::string, std::string>& extra);

/// Receives the events of the worker processes. shut_down() drops the handles.
struct worker_listeners {
  supervisor_actor supervisor;         ///< starts, links, ends, and every message except reports
  report_listener* reports = nullptr;  ///< the workers' reports
  output_listener* output = nullptr;
};

class worker_processes final : public child_starter<worker_ref>,
                               public std::enable_shared_from_this<worker_processes> {
 public:
  worker_processes(process::io_thread& io, worker_program program);

  /// Call before the first start.
  void report_to(worker_listeners listeners) { listeners_ = std::move(listeners); }

  void start(worker_ref who) override;
  void signal(worker_ref who, int number) override;
  [[nodiscard]] std::string current_start() const override;
  /// Kills and reaps all processes and reports nothing more. Blocks; do not call on the io thread.
  void shut_down();

 private:
  struct running {
    worker_ref who;
    std::unique_ptr<process::child_process> process;  // null: another machine runs it
    std::shared_ptr<protocol::worker_link> link;
  };

  /// The worker is being spawned; signals are queued until it runs.
  struct starting {
    worker_ref who;
    std::vector<int> signals;
    std::shared_ptr<process::start_control> control;
  };

  void start_now(worker_ref who);
  void started(worker_ref who, result<linked_child> child);
  void started_elsewhere(worker_ref who, result<remote_child> child);
  void introduce(worker_ref who, pid_t pid, linked_child child);
  void hear(worker_ref who, protocol::from_worker&& message);
  void make_template();
  void template_ended(std::uint32_t worker, pid_t pid, const process::exit_report& report,
                      const process::output_tail& tail);
  void on_end(worker_ref who, const process::exit_report& report, const process::output_tail& tail);

  process::io_thread& io_;
  worker_program program_;
  worker_listeners listeners_;
  // On the io thread only:
  std::map<std::uint32_t, starting> starting_;
  std::map<std::uint32_t, running> running_;
  bool shut_down_ = false;
  supervision::restart_policy template_restarts_;
  std::unique_ptr<process::worker_template> template_;  // from the first start on, until shut_down()
  mutable std::mutex mutex_;                            // guards waits_for_
  std::string waits_for_;                               // what the template waits for
};

}  // namespace penstock::supervisor
