// Starts and signals the worker processes for the supervisor; a template or another machine may run them.
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/supervisor/child_processes.hpp"
#include "actors/supervisor/remote_workers.hpp"
#include "runtime/process/worker_cores.hpp"
#include "runtime/process/worker_template.hpp"
#include "runtime/supervision/restart_policy.hpp"

#include <mutex>

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

struct worker_listeners {
  supervisor_actor supervisor;         ///< gets starts, lost links, ends, and every message except reports
  report_listener* reports = nullptr;  ///< gets the workers' reports
  output_listener* output = nullptr;
};

class worker_processes final
    : public child_processes<worker_ref, protocol::from_worker, protocol::to_worker, worker_listeners> {
 public:
  worker_processes(process::io_thread& io, worker_program program);

  [[nodiscard]] std::string current_start() const override;

 private:
  [[nodiscard]] bool is_remote(worker_ref who) const;
  void launch(worker_ref who, process::child_callbacks calls) override;
  void signal_start(worker_ref who, child& one, int number) override;
  void release() override { template_.reset(); }
  linked_child_request request_for(worker_ref who) override;
  void tell_started(worker_ref who, linked_child& made, const std::shared_ptr<child_link>& link) override;
  void tell_refused(worker_ref who, failure why) override;
  void tell_message(worker_ref who, protocol::from_worker&& message) override;
  void tell_closed(worker_ref who, const std::string& reason) override;
  void tell_ended(worker_ref who, const process::exit_report& report, const process::output_tail& tail) override;
  void make_template();
  void template_ended(std::uint32_t worker, pid_t pid, const process::exit_report& report,
                      const process::output_tail& tail);

  worker_program program_;
  // On the io thread only:
  supervision::restart_policy template_restarts_;
  std::unique_ptr<process::worker_template> template_;  // exists from the first start until shut_down()
  mutable std::mutex mutex_;                            // guards waits_for_
  std::string waits_for_;                               // what the template waits for
};

}  // namespace penstock::supervisor
