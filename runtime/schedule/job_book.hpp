// The state of every job of a pool: where it runs and how it ended. The ledger (ledger.hpp) is its
// counterpart for a stream. Pure: no thread, no I/O, time is an argument. Events come in as calls, commands
// come out of advance(). Driven by actors/jobs/job_scheduler.
//
//             lease              a worker begins it         finished | failed | too large
//   waiting ---------> leased --------------------> begun ------------------------------> settled
//      ^                 |                            |
//      |  revoked, or    |     its worker died:       |
//      |  a death before |     blamed, tried again   |     (poisoned, timed_out, worker_lost, cancelled)
//      +-----------------+----------------------------+------------------------------> settled
//
// Every submitted job is settled exactly once. A lease is a slot with several small jobs (a bundle with at
// most `bundle_goal` of expected work) or with one job of any size; its rows run in
// order. The book learns from the slot's table which rows have started and finished.
// The table is read on each report of the worker and once more after its death.
//
// Rules J1-J14 and J17. Suspicion, probations and poisoning work as for samples (suspicion.hpp): after the
// second death a job runs alone in the sacrificial worker; the third death poisons it.
//
// Order. Jobs are leased in the order of their numbers, so a retried job precedes all jobs that were never
// leased. Idle workers get leases first. After that, each worker may have one lease queued behind its current
// one, and more while all its leases together are less work than `bundle_goal`. When no job waits, or none
// has memory for its result, an idle worker takes over the later half of the rows that another worker has not
// started. Jobs with a preferred worker come first, and stay with it.
//
// Slots. A slot is busy from its lease until its rows are settled, its worker has passed them, and every
// result in it has been freed. A worker passes a row by finishing it or by reporting it. So if the last rows
// of a lease were revoked, the lease ends only when its worker has reported all of them: until then the
// worker may still read the table.
//
// Memory. Results outside of slots count against `room` (set_memory()) until their callers free them. A job
// starts only if there is room for its expected result in addition to the expected results of the running
// jobs. The first unsettled job starts unless results of earlier jobs leave no room: later jobs never block
// an earlier one, so a caller that takes results in order always gets the next one. Urgent jobs start in any
// case, and before the others.
//
// Bounds. The submitter limits the number of waiting jobs; leased rows are limited by slots x rows_max.
// Memory: one entry for each job that is not settled and one number for each function. Time per job:
// log(waiting jobs); per advance(): workers x slots, plus the rows of one worker when work is moved.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/schedule/slot_table.hpp"
#include "runtime/schedule/suspicion.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace penstock::schedule {

/// Counts up from 1; never reused.
using job_id = std::uint64_t;

struct job_book_settings {
  std::uint32_t max_attempts = 3;
  std::uint32_t rows_max = 256;          ///< per lease
  nanoseconds bundle_goal{1'000'000};    ///< expected work of a bundle
  nanoseconds room_patience{1'000'000};  ///< how long a result may stay in a slot that is needed
  /// How long a suspect waits for a worker other than the one that it killed.
  nanoseconds suspect_patience{100'000'000};
  std::uint64_t slot_bytes = 0;
  std::uint64_t row_bytes = 0;   ///< bytes of one row of the slot's table
  std::uint64_t head_bytes = 0;  ///< bytes of the table's header
  /// How long a job waits for its preferred worker while that worker takes no work. A dead worker's
  /// replacement is usually ready sooner.
  nanoseconds place_patience{10'000'000'000};
  /// How long a job waits for its preferred worker if that worker has never been ready. When many workers
  /// start at once from a slow file system, each takes longer.
  nanoseconds first_place_patience{120'000'000'000};
};

struct job_request {
  job_id job = 0;
  std::uint32_t function = 0;
  /// Bytes taken in the slot, rounded up. An argument in a memfd
  /// counts as the whole slot, so that the job is not bundled.
  std::uint64_t argument_bytes = 0;
  nanoseconds limit{0};     ///< for one attempt; 0: none
  bool idempotent = true;   ///< false: the job must not be begun twice
  bool fresh = false;       ///< runs only in a process that has run nothing else
  bool holds_slot = false;  ///< its result stays in the slot, whatever its size, until result_gone()
  bool urgent = false;      ///< starts before other jobs, however much memory results take
  /// The preferred worker. Another one runs the job if this one takes no work for `place_patience`
  /// (`first_place_patience` before it has been ready for the first time). A suspect is tried there again,
  /// and then alone.
  std::optional<std::uint32_t> place{};
  bool lost_before = false;  ///< a death has lost an earlier job with the same work
};

// ---- commands: all of them are carried out, in order, before the next advance() ---------------------------

struct leased_job {
  job_id job = 0;
  std::uint32_t attempt = 1;  ///< 1 + deaths blamed on the job
  bool first = true;          ///< whether this is the first lease of the job
  bool operator==(const leased_job&) const = default;
};
/// Write these jobs into the slot and tell its worker.
struct lease_jobs {
  lease_ref lease;
  std::vector<leased_job> rows;
};

/// Try to revoke this row. If that succeeds, call row_revoked() at once; otherwise do nothing.
struct revoke_row {
  lease_ref lease;
  std::uint32_t row = 0;
  job_id job = 0;
};

enum class job_end : std::uint8_t {
  result,     ///< finished; the row says where the result is
  exception,  ///< the function threw, or does not exist; the row says where the text is
  too_large,  ///< the result does not fit [jobs] memory, or overran its space
  poisoned,   ///< the job killed max_attempts workers
  timed_out,
  cancelled,
  worker_lost,  ///< not idempotent, and its worker died
};

/// How a job ended. Emitted once per job.
struct settle_job {
  job_id job = 0;
  job_end how = job_end::result;
  std::uint32_t attempts = 0;         ///< how many times it is known to have been started
  std::vector<std::string> causes{};  ///< the causes of the deaths blamed on it, oldest first
  /// For result, exception and too_large: the row of the table with the details.
  struct place {
    lease_ref lease;
    std::uint32_t row = 0;
  };
  std::optional<place> at{};
  bool keeps_slot = false;            ///< its result occupies the slot until result_gone()
  bool never_leased = false;          ///< no lease_jobs command has contained it
  std::uint64_t bytes_elsewhere = 0;  ///< size of its result outside of the slot
};

/// Kill this worker to end its current job, even if it runs another job by then (supervisor). Blames no
/// job.
struct end_worker {
  worker_ref who;
  job_id job = 0;
  bool at_once = false;
};

/// A job waits for a fresh process, and this worker is idle, so replace it (supervisor).
struct refresh_worker {
  worker_ref who;
};

/// The worker needs a slot, and only results have occupied this one for `room_patience`: copy them out,
/// and call result_gone() for each. Emitted once per lease; if no result could be moved, the next
/// advance() names another slot. Waiting avoids most copies, because callers usually free a
/// result within microseconds.
struct empty_slot {
  lease_ref lease;
};

using job_command = std::variant<lease_jobs, revoke_row, settle_job, end_worker, refresh_worker, empty_slot>;

// ---- facts in events ---------------------------------------------------------------------------------

/// A row of a slot's table, as read and checked by the session.
struct row_reading {
  enum class state : std::uint8_t {
    waiting,
    begun,
    finished,
    failed,
    too_large,
    revoked,
    unreadable,  ///< the worker has overwritten it, so the job may have started
  };
  state at = state::waiting;
  /// For a finished row: whether its result is in the slot and may be read there.
  bool keeps_slot = false;
  steady_time begun{};
  nanoseconds busy{0};
  std::uint64_t bytes_elsewhere = 0;  ///< for a finished row: size of its result outside of the slot
};

/// Rows first .. first + rows.size() - 1 of a lease. Rows before `first` have not changed
/// since an earlier reading.
struct lease_reading {
  lease_ref lease;
  std::vector<row_reading> rows;
  std::uint32_t first = 0;
};

using job_arrival = arrival;

enum class cancelled : std::uint8_t {
  before_it_began,  ///< cancelled; the job will never start
  running,          ///< its worker is being killed, unless `only_waiting`
  over,             ///< it is settled, or was never submitted
};

/// What a death says about the job that the worker ran.
enum class job_death : std::uint8_t {
  unrelated,      ///< the death has nothing to do with the job (an operator, a drain)
  of_the_job,     ///< the job may have caused it
  of_its_limit,   ///< the worker was killed because the job exceeded its limit
};

/// The job that a death is blamed on.
struct job_blame {
  job_id job = 0;
  std::uint32_t attempt = 1;
  bool alone = false;  ///< the job ran in the sacrificial worker
};

/// A lease that a death ended, of one job.
struct lost_lease {
  job_id job = 0;
  steady_time leased{};
};

/// The jobs that a death lost and that run again.
struct job_losses {
  std::uint32_t jobs = 0;   ///< those that had begun: the others run only once
  std::uint32_t again = 0;  ///< of these, those that an earlier death had lost, too
  std::vector<lost_lease> leases{};  ///< of all jobs that the worker had, begun or not, unless the program has cancelled them
};

/// A lease with rows that are not settled.
struct open_lease {
  lease_ref lease;
  std::uint32_t rows = 0;     ///< in total
  std::uint32_t settled = 0;  ///< settled rows at the beginning, which a reading may omit
};

// ---- the book ---------------------------------------------------------------------------------------------

/// Not thread-safe.
class job_book {
 public:
  explicit job_book(const job_book_settings& settings);
  job_book(const job_book&) = delete;
  job_book& operator=(const job_book&) = delete;

  /// The commands to carry out now, in order. Call after one or several events, once a second while jobs
  /// wait, and at next_look().
  [[nodiscard]] std::vector<job_command> advance(steady_time now);
  /// When advance() has something to do without an event: `room_patience` expires for a needed slot, or
  /// `suspect_patience` for a suspect that an idle worker must not run. As of the last advance(). Empty if
  /// there is nothing to wait for.
  [[nodiscard]] std::optional<steady_time> next_look() const noexcept { return next_look_; }

  // Jobs.

  /// `request.job` must be larger than in all earlier calls, and the argument must fit a slot.
  void submit(const job_request& request);
  /// The row to revoke before this job is cancelled. Empty if the job waits, is known to have started, or is
  /// settled.
  [[nodiscard]] std::optional<revoke_row> revocable(job_id job) const;
  /// Cancels a job in any state (rule J17). `only_waiting`: only if it has not started. The caller must first
  /// try to revoke the row that revocable() names: after that, a job that is still leased counts as started.
  /// If the row could not be revoked, call seen() before this: if the job has finished meanwhile, its worker
  /// need not be killed. A job that finishes before its worker is dead ends with its result.
  cancelled cancel(job_id job, bool only_waiting = false, bool at_once = false);
  /// The row was revoked.
  void row_revoked(const lease_ref& lease, std::uint32_t row);

  // Workers. An incarnation joins once, when it is ready, and dies once; repeats are ignored.

  void worker_joined(worker_ref who, std::uint32_t slots, bool sacrificial = false);
  /// The worker gets no new leases. `after_current_batch`: rows that have not started are revoked.
  void worker_drains(worker_ref who, bool after_current_batch = false);
  /// A worker reports that it is done with the first `first + rows.size()` rows of a lease, as read from the
  /// slot's table. A report covers several rows; rows that were reported before are ignored. `impossible`: the
  /// report was dropped, and the caller must fence the worker.
  [[nodiscard]] job_arrival reported(const lease_reading& so_far);
  /// Like reported(), but without a report from the worker, which may still read these rows.
  [[nodiscard]] job_arrival seen(const lease_reading& so_far);
  /// Call when the process is reaped, or survives SIGKILL. `last`: the current table of every lease in
  /// leases_of(); a missing one counts as unreadable. Returns the blamed job; empty after an end_worker command.
  std::optional<job_blame> worker_died(worker_ref who, const std::vector<lease_reading>& last,
                                       const std::string& cause, job_death how, steady_time now);
  /// The job that worker_died would blame, for death records. Does not blame it.
  [[nodiscard]] std::optional<job_blame> would_blame(worker_ref who,
                                                     const std::vector<lease_reading>& last) const;
  /// The leases whose tables worker_died needs, in the order in which they run.
  [[nodiscard]] std::vector<open_lease> leases_of(worker_ref who) const;
  /// The sacrificial worker cannot be started, so jobs that wait for it are poisoned.
  void cannot_try_alone(const std::string& reason);

  // Slots.

  /// A result in the slot was freed or copied out. Ignored if the lease is over.
  void result_gone(const lease_ref& lease);

  void set_paused(bool paused) { paused_ = paused; }
  /// `before` returns how many bytes of results callers keep, counting only jobs before the given one. Until
  /// this is called, results are unlimited.
  void set_results_before(std::function<std::uint64_t(job_id)> before) { memory_.before = std::move(before); }
  /// For the next advance(). `kept`: bytes of results that callers keep; `room`: the limit for these; `most`:
  /// the limit if there were no arguments.
  void set_memory(std::uint64_t kept, std::uint64_t room, std::uint64_t most) noexcept {
    memory_.kept = kept;
    memory_.room = room;
    memory_.most = most;
  }

  // Queries.

  /// Why the last advance() did not start a job although a worker would have taken it.
  struct memory_lack {
    job_id first = 0;         ///< the first unsettled job
    std::uint64_t bytes = 0;  ///< at least this many must be freed before any job starts
  };
  [[nodiscard]] std::optional<memory_lack> lacks_memory() const noexcept;
  [[nodiscard]] bool wants_sacrificial() const noexcept { return suspicion_.anybody_isolated(); }
  [[nodiscard]] std::uint64_t waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::uint64_t unsettled() const noexcept { return jobs_.size(); }
  /// The losses of the last worker_died().
  [[nodiscard]] const job_losses& last_losses() const noexcept { return last_losses_; }
  /// Unsettled jobs with a death blamed on them.
  [[nodiscard]] std::uint64_t suspected() const noexcept { return suspicion_.suspects(); }
  /// The number of unsettled rows in the worker's leases.
  [[nodiscard]] std::uint32_t rows_of(std::uint32_t worker) const noexcept;
  [[nodiscard]] std::uint64_t stale_dropped() const noexcept { return stale_dropped_; }

 private:
  using row_state = row_reading::state;

  enum class whereabouts : std::uint8_t { ordinary, suspected, fresh, placed, isolated, leased };

  struct function_entry {
    nanoseconds typical{-1};                      // run time; negative: no job of this function has ended
    std::optional<std::uint64_t> result_bytes{};  // the largest recent result outside of slots
  };
  struct job_entry {
    job_request request;
    function_entry* function = nullptr;
    whereabouts where = whereabouts::ordinary;
    bool leased_before = false;
    bool blamed = false;      // whether the job is blamed for at least one death
    bool lost = false;        // whether a worker died while running the job, blamed on the job or not
    bool ending = false;      // the worker is being killed to end the job
    std::uint32_t avoid = 0;  // the worker that the job killed last, if any
    steady_time blamed_at{};
    std::uint32_t runs = 0;
    // While it is leased:
    steady_time leased{};
    std::uint32_t worker = 0;
    std::uint32_t slot = 0;
    std::uint32_t row = 0;
  };
  using waiting_jobs = std::map<job_id, job_entry*>;
  struct placed_jobs {
    waiting_jobs jobs{};
    // Since when their worker has taken no work; empty: it takes work.
    std::optional<steady_time> absent_since{};
  };

  /// Waiting jobs that any worker may run.
  struct unrestricted_jobs {
    waiting_jobs urgent{};
    waiting_jobs others{};
    [[nodiscard]] bool empty() const noexcept { return urgent.empty() && others.empty(); }
    [[nodiscard]] std::uint64_t size() const noexcept { return urgent.size() + others.size(); }
    [[nodiscard]] waiting_jobs& of(const job_entry& e) noexcept { return e.request.urgent ? urgent : others; }
    [[nodiscard]] job_entry& next() const { return *(urgent.empty() ? others : urgent).begin()->second; }
    [[nodiscard]] job_id first() const;  ///< the largest number if there is none
  };

  /// Waiting jobs grouped by the worker that they avoid, so that no search visits jobs that this worker must
  /// not run.
  class restricted_jobs {
   public:
    void add(job_entry& e);
    void remove(const job_entry& e);
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
    [[nodiscard]] std::uint64_t size() const noexcept { return count_; }
    /// The first job that does not avoid `worker`; if this is the `only` worker, the first of all jobs. A job
    /// that was blamed at or before `patient_since` no longer avoids any worker.
    [[nodiscard]] job_entry* first_for(std::uint32_t worker, bool only, steady_time patient_since) const;
    /// When a job that avoids `worker` was blamed: the earliest such time.
    [[nodiscard]] std::optional<steady_time> first_blamed(std::uint32_t worker) const;
    [[nodiscard]] job_id first() const;  ///< requires that there is a job

   private:
    std::unordered_map<std::optional<std::uint32_t>, waiting_jobs> by_avoided_;  // no group is empty
    std::uint64_t count_ = 0;
  };

  struct row {
    job_entry* job = nullptr;  // null: the job is settled, or waits again
    row_state at = row_state::waiting;
    bool asked = false;  // a revoke_row was emitted
    nanoseconds expected{0};
    std::uint64_t reserved = 0;  // memory reserved for the job's result
    steady_time begun{};
  };
  struct lease_rows {
    std::vector<row> rows{};
    std::uint32_t incarnation = 0;
    std::uint32_t first_open = 0;         // all earlier rows are over or revoked
    std::uint32_t open = 0;               // neither over nor revoked
    std::uint32_t passed = 0;             // rows that the worker has reported
    std::uint32_t kept = 0;               // results in the slot
    std::optional<steady_time> wanted{};  // when the slot was first needed while results occupied it
    bool asked = false;                   // an empty_slot was emitted
  };
  struct workload {
    std::vector<std::uint32_t> order{};  // slots with open rows, in the order of their leases
    std::uint32_t open_rows = 0;
    nanoseconds expected{0};     // run time expected for the open rows
    bool untouched = true;       // this process was never given a lease
    std::uint64_t asked_in = 0;  // the last round in which an empty_slot was emitted
    bool ending = false;         // an end_worker was emitted
    bool ending_at_once = false;
    bool refreshing = false;  // a refresh_worker was emitted; cleared when a new process joins
    bool reserved = false;    // gets no leases, so that it can be replaced by a fresh process
    steady_time died{};       // while `refreshing`: when the worker died
  };
  using table = slot_table<lease_rows, workload>;
  using stage = table::stage;
  using worker = table::worker;

  struct row_place {
    std::uint32_t slot = 0;
    std::uint32_t row = 0;
  };
  struct memory_state {
    std::uint64_t kept = 0;  // as of set_memory()
    std::uint64_t room = 0;
    std::uint64_t most = 0;
    std::uint64_t settling = 0;  // bytes of results in the outbox
    std::uint64_t reserved = 0;  // expected size of the results of open rows
    std::uint64_t lacking = 0;   // the least memory that any job lacked in this round; 0: none lacked memory
    std::function<std::uint64_t(job_id)> before{};
  };
  struct scratch {                        // kept between calls to reuse its memory
    std::vector<job_entry*> bundle{};     // used by give()
    std::vector<std::uint32_t> takers{};  // used by lease_ordinary()
    std::vector<std::uint32_t> donors{};  // used by move_work()
  };

  /// What an idle worker can take from a busy one. `nothing_for_it`: all remaining
  /// jobs avoid the idle worker.
  enum class takeover : std::uint8_t { work, nothing_for_it, nothing };
  struct last_words {
    const std::string& cause;
    job_death how = job_death::unrelated;
    bool alone = false;
    std::uint32_t worker = 0;
    steady_time now{};
  };

  // job_leasing.cpp: what advance() decides.
  void lease_probations();
  void lease_fresh(steady_time now);
  void prepare_for_fresh(steady_time now);
  [[nodiscard]] std::uint64_t processes_under_way(steady_time now) const;
  void refresh(std::uint32_t index, worker& w);
  void lease_placed(steady_time now);  // job_placement.cpp
  void lease_suspects(steady_time now);
  void lease_ordinary();
  void lease_bundle(std::uint32_t index, std::uint64_t share);
  void lease_alone(std::uint32_t index, job_entry& e);
  void give(std::uint32_t index);
  void ask_for_room(steady_time now);
  void ask_for_room(std::uint32_t index, worker& w, steady_time now);
  void move_work(steady_time now);
  [[nodiscard]] takeover revoke_half_for(std::uint32_t idle, std::uint32_t donor, steady_time now);
  /// The first of these suspects or fresh jobs that may run in this worker.
  [[nodiscard]] job_entry* first_of(const restricted_jobs& some, std::uint32_t index, steady_time now) const;
  void look_when_patience_ends(steady_time now);
  void look_again(steady_time when);
  [[nodiscard]] bool works(const worker& w) const;
  [[nodiscard]] bool wants_more(const worker& w) const;
  [[nodiscard]] bool something_for(std::uint32_t index, const worker& w, steady_time now);
  [[nodiscard]] nanoseconds expected_of(const job_entry& e) const;
  // job_memory.cpp: whether memory has room for a job's result.
  [[nodiscard]] bool may_begin(const job_entry& e);
  [[nodiscard]] std::uint64_t result_of(const job_entry& e) const;
  [[nodiscard]] std::uint64_t results_before(job_id job) const;
  [[nodiscard]] job_id first_waiting() const;
  [[nodiscard]] bool is_first(const job_entry& e) const;
  static void learn(function_entry& f, const row_reading& now);

  // job_book.cpp: how events change the state.
  void enqueue(job_entry& e);
  void dequeue(job_entry& e);
  void settle(job_entry& e, settle_job how);
  void revoke_unbegun(worker_ref who, worker& w);
  void end_holder(const job_entry& e, bool at_once);
  [[nodiscard]] job_arrival take_reading(const lease_reading& so_far, bool passed);
  [[nodiscard]] static bool plausible(const lease_rows& known, const lease_reading& so_far);
  void absorb(const lease_reading& so_far, worker& w, lease_rows& known);
  void row_over(const lease_ref& lease, std::uint32_t index, worker& w, lease_rows& known,
                const row_reading& now);
  void close_row(row& r, row_state how, worker& w, lease_rows& known);
  void end_lease_if_over(std::uint32_t index, std::uint32_t number);
  [[nodiscard]] std::optional<row_place> row_at_work(const worker& w, worker_ref who,
                                                     const std::vector<lease_reading>& last) const;
  void lose_row(const row& lost, bool at_work, const last_words& words);
  [[nodiscard]] static job_arrival unless_current(lease_standing standing);

  job_book_settings settings_;
  suspicion suspicion_;
  table workers_;
  std::unordered_map<job_id, job_entry> jobs_;
  std::unordered_map<std::uint32_t, function_entry> functions_;
  unrestricted_jobs ordinary_;
  restricted_jobs suspected_;
  restricted_jobs fresh_;
  std::map<std::uint32_t, placed_jobs> placed_;  // by worker
  scratch scratch_;
  memory_state memory_;
  std::vector<job_command> outbox_;
  steady_time now_{};  // of the last advance()
  std::optional<steady_time> next_look_;
  job_losses last_losses_;
  job_id last_job_ = 0;
  std::uint64_t waiting_ = 0;
  std::uint64_t round_ = 0;  // counts calls to advance()
  std::uint64_t stale_dropped_ = 0;
  std::uint32_t loaders_ = 0;  // workers that take leases, counted by advance()
  bool paused_ = false;
};

}  // namespace penstock::schedule
