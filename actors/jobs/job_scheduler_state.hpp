// The job scheduler's state, shared by its files. job_scheduler.cpp translates messages into calls to the
// book, job_commands.cpp translates the book's commands into messages, and job_submissions.cpp handles
// submitted and cancelled jobs. Private to these three.
#pragma once

#include "actors/caf/shared_actor.hpp"
#include "actors/jobs/argument_copiers.hpp"
#include "actors/jobs/device_jobs.hpp"
#include "actors/jobs/job_scheduler.hpp"
#include "actors/jobs/pending_parcels.hpp"
#include "actors/jobs/place_slots.hpp"

#include <functional>
#include <map>
#include <set>
#include <unordered_map>

namespace penstock::jobs {

struct joined_worker {
  worker_ref who;
  std::shared_ptr<protocol::worker_link> link;
  std::shared_ptr<const unique_fd> parcels;
  bool draining = false;
  bool told_to_stop = false;
};

/// A job that has not ended.
struct open_job {
  std::shared_ptr<job_record> record;
  std::uint32_t function = 0;
  bool leased = false;  // leased at least once: no longer counted as waiting
  bool ending = false;  // its caller has ended the job: the result no longer goes to the device
};

/// The results that a slot's latest lease left there.
struct slot_results {
  lease_ref lease;
  std::vector<std::weak_ptr<kept_result>> all;
};

struct scheduler_state {
  scheduler_state() = default;
  ~scheduler_state() = default;
  scheduler_state(const scheduler_state&) = delete;
  scheduler_state& operator=(const scheduler_state&) = delete;

  job_scheduler_deps deps;
  supervisor::supervisor_actor supervisor;
  gpu_owner::gpu_owner_actor owner;  // may be null
  std::unique_ptr<schedule::job_book> book;
  std::unique_ptr<device_jobs> device;    // jobs at the device, which have ended in the book
  std::set<schedule::job_id> stay_there;  // jobs not yet ended whose results must stay on the device
  std::unordered_map<schedule::job_id, open_job> jobs;
  struct {
    bool known = false;
    std::map<std::string, std::uint32_t, std::less<>> indexes;  // by name
    std::vector<job_listener::function_counts> counts;              // indexed by function
    std::vector<std::shared_ptr<job_record>> early;             // submitted before the functions were known
  } functions;
  std::map<std::uint32_t, place_slots> places;
  std::map<std::uint32_t, joined_worker> workers;
  std::map<std::pair<std::uint32_t, std::uint32_t>, slot_results> in_slots;  // keyed by place and slot
  std::optional<pending_parcels> parcels;                                    // received from workers
  job_listener::tally tally;
  std::vector<std::function<void()>> ended;  // calls that report ended jobs to their callers
  nanoseconds shortest_limit = nanoseconds::max();
  std::optional<failure> cancelled;
  std::unordered_map<schedule::job_id, std::uint32_t> host_losses;  // per job: how many loader hosts were lost while running it
  /// Which decide_jobs messages are on their way: at most one for each reason (news, second, look).
  struct {
    bool due = false;
    bool asked_in_a_second = false;
    std::optional<steady_time> at;  // when the decide_jobs that the book requested is due
  } decision;
  bool sacrificial = false;
  argument_copiers copiers;
};

using self_pointer = actors::shared_self<job_scheduler_actor, scheduler_state>;

/// The number that messages to users give this job.
[[nodiscard]] std::uint64_t known_as(const scheduler_state& s, schedule::job_id job);

/// Calls act() once the mailbox is empty, so that a burst of messages costs one pass.
void decide_soon(self_pointer self);

// ---- job_commands.cpp -------------------------------------------------------------------------------------

/// Carries out the book's commands. later: another thread notifies the callers of ended jobs. That frees
/// arguments, which may run the callers' code.
enum class notify : std::uint8_t { now, later };
void act(self_pointer self, notify callers = notify::now);
/// Counts the end of a job for its function.
void note_end(scheduler_state& s, const open_job& job, job_status how);
void fail_job(scheduler_state& s, const std::shared_ptr<job_record>& record, job_failure why);
void end_at_device(scheduler_state& s, device_outcome outcome);
void end_at_device(scheduler_state& s, std::vector<device_outcome> outcomes);
/// Updates the statistics.
void report_counts(scheduler_state& s);
/// Notifies the callers of ended jobs. Call report_counts() first: the callers may query the statistics at
/// once.
void notify_callers(scheduler_state& s);

// ---- job_submissions.cpp ----------------------------------------------------------------------------------

void enter(scheduler_state& s, const std::shared_ptr<job_record>& record);
void learn_functions(scheduler_state& s, const functions_known& news);
void end_one(scheduler_state& s, const end_job& order);
void end_all(scheduler_state& s, const failure& why);

}  // namespace penstock::jobs
