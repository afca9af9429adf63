// Which job runs where, and what has become of each: the ledger of a pool (ledger.hpp is that of a stream). Pure: no
// thread, no I/O, time is an argument. Events come in as calls, commands come out of advance(). Driven by
// actors/jobs/job_scheduler.
//
//             lease              a worker begins it         finished | failed | too large
//   waiting ---------> leased --------------------> begun ------------------------------> settled
//      ^                 |                            |
//      |  revoked, or    |     its worker died:       |
//      |  a death before |     charged, tried again   |     (poisoned, timed_out, worker_lost, cancelled)
//      +-----------------+----------------------------+------------------------------> settled
//
// Every job that was submitted is settled exactly once. A lease is a slot with several small jobs (a bundle, at most
// `bundle_goal` of expected work) or one of any size; its rows run in order. The book learns what has begun and
// finished from readings of the slot's table: with a worker's report, and once more when the worker is dead.
//
// Semantics 43-45 and 47. Suspicion, trials and poisoning are those of samples (suspicion.hpp): the second death takes
// a job to the sacrificial worker, alone; the third poisons it.
//
// Slots. A slot is busy from its lease until its rows are settled and every result that lies in it has been let go.
//
// Bounds. Waiting jobs are limited by who submits; leased rows by slots x rows_max; memory is one entry for each job
// that is not settled and one number for each function.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/schedule/suspicion.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace penstock::schedule {

/// Counts up from 1; never used again.
using job_id = std::uint64_t;

struct job_book_settings {
  std::uint32_t max_attempts = 3;
  std::uint32_t rows_max = 256;        ///< of a lease
  nanoseconds bundle_goal{1'000'000};  ///< expected work of a lease of several jobs
  std::uint64_t slot_bytes = 0;
  std::uint64_t row_bytes = 0;  ///< of the slot's table, for each row; and its head
  std::uint64_t head_bytes = 0;
};

struct job_request {
  job_id job = 0;
  std::uint32_t function = 0;
  std::uint64_t argument_bytes = 0;  ///< in the slot, rounded up; 0 when they travel in a memfd
  nanoseconds limit{0};              ///< of one run; 0: none
  bool idempotent = true;            ///< false: never begun twice
  bool fresh = false;                ///< only in a process that has run nothing else
};

// ---- commands -----------------------------------------------------------------------------------------------

struct leased_job {
  job_id job = 0;
  std::uint32_t attempt = 1;
  bool operator==(const leased_job&) const = default;
};
/// Write these jobs into the slot and tell its worker.
struct lease_jobs {
  lease_ref lease;
  std::vector<leased_job> rows;
};

/// Try to keep this row from being begun; answer with row_revoked() if that worked, with nothing if not.
struct revoke_row {
  lease_ref lease;
  std::uint32_t row = 0;
  job_id job = 0;
};

enum class job_end : std::uint8_t {
  result,     ///< finished; the result lies where the row says
  exception,  ///< the function threw, or does not exist; the text lies where the row says
  too_large,  ///< the result does not fit [jobs] memory, or overran its space
  poisoned,   ///< it killed max_attempts workers
  timed_out,
  cancelled,
  worker_lost,  ///< not idempotent, and its worker died
};

/// What has become of a job. Once for each.
struct settle_job {
  job_id job = 0;
  job_end how = job_end::result;
  std::uint32_t attempts = 1;         ///< how often it was begun, as far as is known; 0: never
  std::vector<std::string> causes{};  ///< of the deaths charged to it
  /// Of result, exception and too_large: the row of the table that says more.
  struct place {
    lease_ref lease;
    std::uint32_t row = 0;
  };
  std::optional<place> at{};
};

/// The job that it is at is to end now: kill this worker (supervisor).
struct end_worker {
  worker_ref who;
  job_id job = 0;
};

/// A job waits for a process that has run nothing, and this one is idle: replace it (supervisor).
struct refresh_worker {
  worker_ref who;
};

/// All other slots of this worker are busy with results that nobody has taken: copy them out, then slot_emptied().
struct empty_slot {
  std::uint32_t worker = 0;
  std::uint32_t slot = 0;
};

using job_command = std::variant<lease_jobs, revoke_row, settle_job, end_worker, refresh_worker, empty_slot>;

// ---- what events say ----------------------------------------------------------------------------------------

/// A row of a slot's table as the session has read and checked it.
struct row_reading {
  enum class state : std::uint8_t { waiting, begun, finished, failed, too_large };
  state at = state::waiting;
  bool keeps_slot =
      false;  ///< of one that is over: its result lies in the slot and somebody may read it there
  steady_time begun{};
  nanoseconds busy{0};
};
struct lease_reading {
  lease_ref lease;
  std::vector<row_reading> rows;  ///< all of them
};

enum class job_arrival : std::uint8_t { accepted, late, impossible };

enum class cancelled : std::uint8_t {
  before_it_began,  ///< removed, or will be unless it begins at this moment
  running,          ///< its worker is ended
  over,             ///< it is settled, or was never submitted
};

/// Whom a death is charged to.
struct job_charge {
  job_id job = 0;
  std::uint32_t attempt = 1;
  bool alone = false;
};

// ---- the book -----------------------------------------------------------------------------------------------

/// Not thread-safe.
class job_book {
 public:
  explicit job_book(const job_book_settings& settings);

  /// What is to be done now, in order. Call after every event, or after several.
  [[nodiscard]] std::vector<job_command> advance(steady_time now);

  // Jobs.

  /// `request.job` is larger than any before, and its argument fits a slot.
  void submit(const job_request& request);
  /// Ends a job wherever it is (semantics 47). `only_waiting`: leaves one that has begun alone.
  cancelled cancel(job_id job, bool only_waiting = false);
  /// The caller has done what revoke_row asked for.
  void row_revoked(const lease_ref& lease, std::uint32_t row);

  // Workers. An incarnation joins once, when it is ready, and dies once; repeats are ignored.

  void worker_joined(worker_ref who, std::uint32_t slots, bool sacrificial = false);
  /// No new leases; rows that have not begun are revoked if it `hurries`.
  void worker_drains(worker_ref who, bool hurries = false);
  /// The first `rows` rows of the lease are as read here. Rows are reported in bursts; what was reported before
  /// is ignored. `impossible`: the caller fences the worker.
  [[nodiscard]] job_arrival reported(const lease_reading& so_far);
  /// Call when the process is reaped, or survives SIGKILL. `last`: every lease that it held, as its tables stand
  /// now. `blames`: false if its death has nothing to do with what it was at (an operator, a drain).
  std::optional<job_charge> worker_died(worker_ref who, const std::vector<lease_reading>& last,
                                        const std::string& cause, bool blames, steady_time now);
  /// The leases whose tables worker_died wants read.
  [[nodiscard]] std::vector<lease_ref> leases_of(worker_ref who) const;
  /// What worker_died would charge, without doing it: for the names of death records.
  /// The sacrificial worker does not come up: what waits for it is poisoned.
  void cannot_try_alone(const std::string& reason);

  // Slots.

  /// One result less lies in the slot: it was let go, or copied out. Late news is ignored.
  void result_gone(const lease_ref& lease);

  void set_paused(bool paused) { paused_ = paused; }

  // Questions.

  [[nodiscard]] bool wants_sacrificial() const noexcept { return suspicion_.anybody_isolated(); }
  [[nodiscard]] std::uint64_t waiting() const noexcept;
  [[nodiscard]] std::uint64_t unsettled() const noexcept { return jobs_.size(); }
  /// Rows that the worker has not reported on yet.
  [[nodiscard]] std::uint32_t rows_of(std::uint32_t worker) const noexcept;
  [[nodiscard]] std::uint64_t stale_dropped() const noexcept { return stale_dropped_; }

 private:
  // (the implementer's)
  job_book_settings settings_;
  suspicion suspicion_;
  std::unordered_map<job_id, job_request> jobs_;
  std::uint64_t stale_dropped_ = 0;
  bool paused_ = false;
};

}  // namespace penstock::schedule
