// The job scheduler actor: translates events into calls to the job book, and the book's commands into
// messages. It replaces a stream's scheduler and gets the same messages about workers. It makes no decisions
// itself.
//
//   receives  worker_joined, worker_ended, worker_written_off, worker_drains, cannot_try_alone     from the supervisor
//             jobs_submitted, results_released, end_job, pause_jobs, cancel_all                    from the pool and handles
//             jobs_reported                                                                        from the workers' links
//             functions_known, partition_mapped                                                    from the pool's host
//             device_answered, device_lost, device_failed                                          from the GPU owner's side
//   sends     run_jobs, stop_work                                                                  to workers
//             upload_batches                                                                       to the GPU owner
//             blame_decided, want_sacrificial, fence_worker, cancel_worker, restart_worker, ...     to the supervisor
//             through job_listener                                                                     reports for others
//   owns      the job book, the records of jobs that have not ended, the session's view of all slots
//
// While there are no more jobs than workers, the thread that sends jobs_submitted or jobs_reported handles
// them itself (actors/caf/shared_actor.hpp): a caller's thread, or the io thread. All other messages are handled
// on the actor system's threads.
#pragma once

#include "actors/jobs/job_record.hpp"
#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/lease_counts.hpp"
#include "runtime/arena/geometry.hpp"
#include "runtime/schedule/job_book.hpp"

#include <penstock/pool.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace penstock::actors {
class actor_system;
}

namespace penstock::jobs {

/// What the job scheduler reports to its pool. Called on the thread that runs it; must not block.
class job_listener {
 public:
  /// Counts of jobs that have ended.
  struct tally {
    std::uint64_t ok = 0;
    std::uint64_t failed = 0;
    std::uint64_t retried = 0;
    std::uint64_t cancelled = 0;
  };
  /// Counts of the jobs of one function.
  struct function_counts {
    std::uint64_t waiting = 0;
    std::uint64_t running = 0;
    std::uint64_t ok = 0;
    std::uint64_t failed = 0;
    std::uint64_t retried = 0;
    std::uint64_t cancelled = 0;
  };
  struct under_way {
    std::uint64_t leased = 0;     ///< jobs that workers have, begun or not
    std::uint64_t at_device = 0;  ///< jobs that the GPU owner has
  };
  /// `ended`: since the last call. `functions`: one entry per function, in the order of functions_named().
  virtual void counted(const tally& ended, std::span<const function_counts> functions, const under_way& now, std::uint64_t stale_dropped) = 0;
  /// The functions of the worker program. Called once.
  virtual void functions_named(const std::vector<std::string>& names) = 0;
  /// Called when the callers of `jobs` ended jobs have been notified.
  virtual void callers_notified(std::uint64_t jobs) = 0;
  /// Called only for failures worth an event: poisoned, timed_out, worker_lost.
  /// `inputs`: job_options::inputs.
  virtual void job_failed(std::uint64_t job, const std::string& work, const job_failure& why, std::uint32_t inputs) = 0;
  /// A worker died that held these jobs. Called before they are leased again or end.
  virtual void leases_lost(std::span<const schedule::lost_lease> leases) = 0;
  /// A worker gets a job that another one has had, or that repeats an ended job (job_options::again).
  virtual void leased_again(std::uint64_t job, steady_time now) = 0;
  /// Jobs on the device wait for callers. Called once per wait.
  virtual void waits_for_callers(const std::string& what) = 0;

 protected:
  ~job_listener() = default;
};

struct job_scheduler_deps {
  schedule::job_book_settings rules;
  arena::geometry shape;
  std::shared_ptr<scheduler::lease_counts> leases;
  std::shared_ptr<admission> meter;
  std::shared_ptr<const slot_left> left;
  std::shared_ptr<lent_buffers> buffers;     ///< the device's buffers; null unless callers may hold them
  job_listener* listener = nullptr;                  ///< outlives the actor
};

job_scheduler_actor spawn_job_scheduler(actors::actor_system& system, job_scheduler_deps deps);

}  // namespace penstock::jobs
