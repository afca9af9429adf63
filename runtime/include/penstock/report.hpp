// What a session has done, and its current state, as plain structs. `penstock run --report` and `penstock
// status` print them as JSON.
#pragma once

#include <penstock/error.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

enum class run_outcome : std::uint8_t {
  running,
  finished,  ///< all requested epochs have been delivered
  stopped,   ///< the session was stopped before all requested epochs were delivered
  failed,
};
PENSTOCK_API const char* name_of(run_outcome outcome) noexcept;

/// The state of a session: `state` in status.
enum class session_state : std::uint8_t { ok, degraded, failed, paused, stopping };
PENSTOCK_API const char* name_of(session_state state) noexcept;

/// The state of a worker or of the GPU owner.
enum class child_state : std::uint8_t {
  idle,  ///< only the owner: nobody has asked for it yet
  stopped,
  starting,
  ready,
  draining,  ///< only a worker: it finishes what it holds
  backoff,   ///< it restarts after a delay
  stopping,  ///< only the owner
  failed,
  unkillable,  ///< only a worker: it is still there after SIGKILL
};
PENSTOCK_API const char* name_of(child_state state) noexcept;

/// Why a worker is stopped.
enum class vacancy : std::uint8_t {
  none,           ///< not stopped, or about to start
  drained,        ///< by an operator, until it is restarted or the pool is scaled
  scaled_down,    ///< there are fewer workers now
  not_restarted,  ///< its process ended, and [loader.restart] type allows no replacement
  not_needed,     ///< the sacrificial worker: no sample is suspected
  host_gone,      ///< its loader host has left
};
/// "drained", "not restarted"; empty for none.
PENSTOCK_API const char* name_of(vacancy why) noexcept;

/// What a stalled stream waits for: `kind` in status.
enum class stall_kind : std::uint8_t {
  sample,     ///< "sample": a worker has been loading one for a while; in a pool: running jobs
  worker,     ///< "worker": it is starting, waits for its restart, or has not started its batch
  probation,  ///< "trial": a suspect must be loaded alone first
  nobody,     ///< "nobody": no worker is left
  gpu_owner,  ///< "gpu": it is starting, being replaced, or copying
  /// "consumer": it neither takes nor releases a batch, or, as a sink in another process, works on one.
  consumer,
  operator_,  ///< "operator": paused, or every worker is drained
  group,      ///< "group": other ranks, which have not arrived, are silent, or stop
};
PENSTOCK_API const char* name_of(stall_kind kind) noexcept;

/// What a worker is doing: `phase` in reports. Workers write these values to shared memory.
enum class work_phase : std::uint8_t {
  idle,       ///< waiting for a lease; a death in this phase is not blamed on a sample
  setup,      ///< Dataset::setup
  loading,    ///< Dataset::load of the row's sample, or the function of the row's job
  checking,   ///< after the sample or job: whether it loaded CUDA, and what else it changed
  collating,  ///< Dataset::collate; the row is the last one of the batch
  opening,    ///< the worker program's factory makes the dataset
  describing  ///< Dataset::describe
};
PENSTOCK_API const char* name_of(work_phase phase) noexcept;

/// What ends with a session. `penstock stop --wait` and `penstock
/// wait --for=finished` return when all of it has ended.
enum class session_scope : std::uint8_t {
  session,  ///< only the session ends: the program continues
  process,  ///< the program ends, too, after it has written its reports
  parent,   ///< the process that started the program ends, too, such as a launcher that collects the reports of its ranks
};

struct device_report {
  std::string kind;  ///< "host" or "cuda"; empty until the device is open
  std::string name;
  std::optional<std::string> uuid;
};

/// An epoch. When it is complete, delivered + failed + quarantined = expected.
struct epoch_report {
  std::uint64_t epoch = 0;
  bool complete = false;
  std::uint64_t from_batch = 0;  ///< the first batch that this process delivered
  /// The position in the epoch's order at which this session started: not 0 if a group's state was resumed in
  /// the middle. The counts below then start there.
  std::uint64_t from_position = 0;
  std::uint64_t expected = 0;
  /// How many of `expected` are repeats, which give every rank the same number of samples ([sampler] uneven).
  std::uint64_t padded = 0;
  std::uint64_t delivered = 0;
  std::uint64_t failed = 0;
  std::uint64_t quarantined = 0;
  /// Delivered by this process in place of a bad sample (on_bad_sample = "replace").
  std::uint64_t replaced = 0;
  std::uint64_t batches = 0;
  /// With order = "relaxed": how many batches this process delivered before an earlier batch of the plan; and
  /// the largest distance, in positions of the plan, between such a batch and the first undelivered one.
  std::uint64_t early_batches = 0;
  std::uint64_t most_early = 0;
  /// Only if digests were requested. Covers the batches delivered so far, so compare the digests of complete epochs
  /// only. Computed in plan order, so it does not depend on [scheduler] order.
  std::optional<std::string> digest;
  double seconds = 0;                 ///< from the request for its first batch to the delivery of its last
};

/// How a process ended, in one word: the field `cause` in reports.
enum class death_cause : std::uint8_t {
  signal,
  exit,
  hang,       ///< a sample took longer than item_timeout, or the start longer than start_deadline
  heartbeat,  ///< the process did not run at all for heartbeat_timeout
  memory,     ///< the worker exceeded [loader.limits] memory
  oom,        ///< the kernel's OOM killer
  protocol,   ///< the process violated the protocol
  stopped,    ///< an operator or the session ended it; `ignored_stop_seconds` if it had to be killed
  cancelled,  ///< the work it was doing was cancelled
  host,       ///< the worker's loader host was lost
  unknown,    ///< another part of the program reaped the process
};
PENSTOCK_API const char* name_of(death_cause cause) noexcept;
/// Whether this end was unexpected. Expected ends: an operator's restart or drain (stopped), the replacement
/// of a worker that exceeded its limit (memory), a cancellation, and the loss of a worker's host (host).
[[nodiscard]] constexpr bool is_unexpected(death_cause cause) noexcept {
  return cause != death_cause::stopped && cause != death_cause::memory && cause != death_cause::cancelled &&
         cause != death_cause::host;
}

struct death_report {
  std::uint32_t worker = 0;
  std::int32_t pid = 0;
  std::uint32_t incarnation = 0;
  death_cause cause = death_cause::unknown;
  std::optional<std::string> signal;    ///< "SIGSEGV"
  std::optional<std::int32_t> code;     ///< exit status
  std::optional<std::uint64_t> sample;  ///< the sample that the death is blamed on, or that it was working on if attempt is 0
  std::optional<std::string> path;
  std::optional<std::uint64_t> epoch;
  std::optional<std::uint64_t> sequence;
  std::optional<std::uint64_t> job{};  ///< in a pool, instead of a sample: the job that the death is blamed on
  std::optional<std::string> work{};   ///< its function, or the text of JobCall::describe()
  /// Set if the process ignored a request to stop: how long after the request it was killed. After such a
  /// kill, or an immediate one by an operator, `sample`, `path` and the batch (in a pool, `work`) are what it
  /// was working on, and nothing is blamed. If the cause is `memory`, `path` (in a pool, `work`)
  /// is what it was working on when it was found to be over its limit.
  std::optional<double> ignored_stop_seconds{};
  /// How long the process had been busy with this work, or with the blamed sample or job.
  std::optional<double> worked_seconds{};
  std::uint32_t hung_before = 0;           ///< how often the same work had hung before: see hung_work
  /// Batches that it held (in a pool: jobs that it had begun), which others load or run again; in a
  /// data loader's pool: batches.
  std::uint32_t held = 0;
  std::uint32_t held_again = 0;  ///< how many of these an earlier death had already lost
  std::uint32_t attempt = 0;           ///< the attempt at the blamed sample or job: 1, 2, ...; 0: none is blamed
  work_phase phase = work_phase::idle;
  std::chrono::system_clock::time_point time;  ///< when the session noticed
  double lived_seconds = 0;
  std::uint64_t rss_bytes = 0;  ///< resident memory shortly before the end; 0: never reported
  std::string wait_channel;     ///< if it hung: "running", "stopped" (suspended), or the kernel function it waited in
  /// Newest first: "/path/of/module+0x1a2b in function", without " in ..." if the module has no symbol there;
  /// empty if not written.
  std::vector<std::string> stack;
  std::string last_output;  ///< the last lines of its output
  std::string reason{};     ///< if the session killed it for a fault: "no heartbeat for 10 s (suspended)"
};

/// The end of a GPU owner's process (placement = "process").
struct owner_death_report {
  std::int32_t pid = 0;
  std::uint32_t incarnation = 0;
  death_cause cause = death_cause::unknown;
  std::optional<std::string> signal;
  std::optional<std::int32_t> code;
  std::optional<std::uint64_t> epoch;  ///< epoch of the batch that it was working on, else of the next or the last one
  std::optional<std::uint64_t> sequence;
  std::optional<double> ignored_stop_seconds{};  ///< as in death_report
  std::string last_words;                      ///< its reason for giving up, or its last output
  std::chrono::system_clock::time_point time;  ///< when the session noticed
  double lived_seconds = 0;
  std::optional<double> recovered_seconds;  ///< from its end to the first upload by the next process
  std::string reason{};                     ///< as in death_report
};

/// A sample or job that hung: its worker was killed by a timeout, or by an operator after at
/// least 5 s of work on it.
struct hung_work {
  struct hang {
    std::uint32_t worker = 0;
    double seconds = 0;  ///< how long the worker had been working on it
    std::chrono::system_clock::time_point time;
    bool timed_out = false;  ///< a time limit ended it
  };
  std::string name;                    ///< the sample's name; in a pool, the name of the job's work
  std::optional<std::uint64_t> job{};  ///< in a pool
  std::vector<hang> hangs{};           ///< oldest first; the last 16
};

/// What deaths of workers and GPU owners have cost a run so far, apart from quarantined samples.
struct death_costs {
  std::uint64_t repeated = 0;              ///< batches (in a pool, jobs) of dead workers that others loaded or ran again
  std::uint64_t repetitions = 0;           ///< the total number of losses: a batch counts once for each death that lost it
  std::uint64_t lost = 0;                  ///< samples of a data loader's batches that were given up, except quarantined ones
  std::optional<double> waited_seconds{};  ///< how long the stream waited for such batches or for an owner; empty: not measured
};

struct quarantine_report {
  std::uint64_t sample = 0;
  std::optional<std::string> path;
  std::uint32_t attempts = 0;
  std::vector<std::string> causes;
  bool known = false;   ///< found by an earlier run, and read from the quarantine file
  bool lifted = false;  ///< an operator has lifted the quarantine
};

/// What a worker's Python code raised.
struct raised_exception {
  std::string type;                 ///< "ValueError"
  std::string message;              ///< at most 500 bytes
  std::vector<std::string> frames;  ///< "data.py:12, in load", innermost last: the last ten
};

struct failure_report {
  std::uint64_t sample = 0;
  std::optional<std::string> path;
  std::string error;
  std::shared_ptr<const raised_exception> exception{};  ///< only in a data loader, for the first 1000
};

/// Counts of the jobs of one function.
struct function_statistics {
  std::string name;
  std::uint64_t waiting = 0;
  std::uint64_t running = 0;  ///< begun by a worker, or at the device
  std::uint64_t ok = 0;
  std::uint64_t failed = 0;
  std::uint64_t retried = 0;
  std::uint64_t cancelled = 0;
};

/// Counts of a pool's jobs so far. The jobs that are waiting, running, ok, failed and cancelled add up to the
/// submitted ones.
struct pool_statistics {
  std::uint64_t submitted = 0;
  std::uint64_t waiting = 0;  ///< not begun yet, as far as the pool knows
  std::uint64_t running = 0;  ///< begun by a worker, or at the device
  std::uint64_t ok = 0;
  std::uint64_t failed = 0;              ///< ended without a result; cancelled jobs are not counted here
  std::uint64_t retried = 0;             ///< retries after a worker's death that was blamed on the job
  std::uint64_t argument_bytes = 0;      ///< bytes of arguments of jobs that have not ended
  std::uint64_t result_bytes = 0;        ///< kept outside of slots
  std::uint64_t memory_bytes = 0;        ///< [jobs] memory
  bool callers_wait = false;             ///< whether callers wait in submit()
  bool callers_hold_everything = false;  ///< whether no job starts until callers free results
  std::vector<function_statistics> functions{};  ///< functions that were called
  std::uint64_t cancelled = 0;                   ///< cancelled by their callers, or by the end of the pool
  std::uint64_t handed = 0;  ///< of the waiting jobs: those sent to a worker that has not begun them
  bool of_batches = false;                       ///< pool_options::of_batches
  /// Of the ok jobs: commands that exited with a code other than 0 (job_verdict).
  std::uint64_t nonzero_exits = 0;
};

/// What ended a group; the same in the reports of all its ranks.
struct group_cause_report {
  std::uint32_t rank = 0;
  std::string host;
  std::int32_t pid = 0;
  std::string cause;
  bool operator==(const group_cause_report&) const = default;
};

/// A process of a rank that `penstock launch` has lost.
struct lost_process_report {
  std::uint32_t rank = 0;
  std::int32_t pid = 0;  ///< -1: it could not be started
  std::string end;       ///< "SIGSEGV"
  std::chrono::system_clock::time_point time;
  bool operator==(const lost_process_report&) const = default;
};

/// Group state of a session that belongs to one (docs/groups.md).
struct group_status {
  std::string group;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint64_t generation = 0;  ///< the coordinator's generation; 0: the ranks have not all joined yet
  /// joining, describing (datasets are compared), running, stopping (at a common step), over
  std::string phase = "joining";
  std::string waits_for{};                 ///< what it waits for, as text; empty: it is not waiting
  std::vector<std::uint32_t> missing{};    ///< ranks that have not arrived, or are lost
  std::uint64_t steps = 0;                 ///< batches that this rank has handed out
  std::optional<std::uint64_t> stop_at{};  ///< the step at which a stopping group ends
  run_outcome outcome = run_outcome::running;
  std::optional<group_cause_report> first_cause{};
  std::vector<lost_process_report> lost{};  ///< losses known from the launcher, oldest first: the last 64
  bool operator==(const group_status&) const = default;
};

/// The worker processes of a run: starts, restarts and deaths.
struct workers_report {
  std::uint32_t workers_configured = 0;
  std::uint32_t workers_started = 0;  ///< incarnations, the sacrificial worker's included
  /// Processes that replaced another one. Starts of the sacrificial
  /// worker do not count, because it exists only while needed.
  std::uint32_t restarts = 0;
  std::uint64_t stale_dropped = 0;   ///< messages that were late or wrong
  std::vector<death_report> deaths;  ///< the last 1000
  std::uint64_t workers_ended_unexpectedly =
      0;  ///< deaths that neither an operator nor a limit of the config caused
};

/// The GPU owner of a run: starts and deaths.
struct owner_report {
  std::string placement;  ///< embedded, process
  std::uint32_t owner_restarts = 0;
  std::vector<owner_death_report> owner_deaths;  ///< the last 1000
  std::uint64_t owners_ended_unexpectedly = 0;   ///< deaths that no operator caused
};

/// [loader] hedge: batches that a second worker loaded too.
struct hedge_counts {
  std::uint64_t started = 0;
  std::uint64_t won = 0;  ///< the second worker was faster
  bool operator==(const hedge_counts&) const = default;
};

struct run_report : workers_report, owner_report {
  std::string session;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  run_outcome outcome = run_outcome::running;
  std::optional<failure> error;  ///< only if the run failed
  device_report device;
  std::vector<epoch_report> epochs;

  // Totals of this process.
  std::uint64_t samples = 0;
  std::uint64_t batches = 0;
  std::uint64_t bytes = 0;  ///< tensor bytes copied to the device, without padding
  double seconds = 0;
  double first_batch_seconds = 0;
  double device_waited_seconds = 0;  ///< time that the consumer waited for batches

  std::vector<quarantine_report> quarantine;
  std::vector<failure_report> failures;  ///< the first 10000
  std::uint64_t uploads = 0;
  bool pinned = false;  ///< the device reads the arena directly
  hedge_counts hedges;

  std::optional<pool_statistics> jobs{};  ///< only for a pool
  std::optional<group_status> group{};    ///< only for a rank of a group
};

/// A worker's private memory while it is more than [loader.limits] memory allows.
struct memory_excess {
  std::uint64_t bytes = 0;  ///< the most that was measured
  std::uint64_t limit_bytes = 0;
  std::string work{};                     ///< what it was working on when that was noticed; in a pool with its job; empty: nothing
  std::optional<std::uint64_t> sample{};  ///< the index of that sample; empty in a pool
  bool operator==(const memory_excess&) const = default;
};

struct worker_status {
  std::uint32_t id = 0;
  std::optional<std::int32_t> pid;
  child_state state = child_state::stopped;
  std::uint32_t incarnation = 0;
  std::uint32_t restarts = 0;
  std::uint64_t samples = 0;  ///< samples of this incarnation
  std::uint64_t rss_bytes = 0;
  std::optional<std::string> current_sample;
  std::optional<double>
      current_sample_seconds;  ///< how long it has been loading that sample; only over the control socket
  /// How long it has been working on what `current_sample` names; only over the control socket. In a data loader that is the time
  /// of the sample itself, while current_sample_seconds is the time of its batch. Empty on a loader host.
  std::optional<double> current_work_seconds{};
  std::optional<death_report> last_death;
  std::optional<double> next_restart_seconds;
  std::optional<std::string> gpu_use{};  ///< evidence that it uses the GPU; only the owner may
  vacancy why_stopped = vacancy::none;
  std::optional<double> current_limit_seconds{};  ///< the time limit of that work, if it has its own; only over the control socket
  /// Set from when the worker is over its memory limit until it is replaced, after its batch.
  std::optional<memory_excess> over_memory{};
  /// The index of the sample that `current_sample` names, and the attempt at it; only over the control socket. Empty in a pool.
  std::optional<std::uint64_t> current_index{};
  std::optional<std::uint32_t> current_attempt{};
  /// The batch that contains the current sample; empty if it is not known, and in a pool.
  std::optional<std::uint64_t> current_epoch{};
  std::optional<std::uint64_t> current_sequence{};
};

/// Transfers from a loader host that were discarded, by kind.
struct refused_transfers {
  std::uint64_t damaged = 0;     ///< the bytes changed on the way
  std::uint64_t wrong_size = 0;  ///< the batch did not fit its lease
  std::uint64_t late = 0;        ///< no lease waited for it any longer; does not count against the host
};

/// A loader host (`penstock host`) that has joined.
struct host_status {
  std::string name;
  std::string address;
  std::int32_t pid = 0;                ///< its pid on that machine
  std::string state;                   ///< joining, ready, draining
  std::vector<std::uint32_t> workers;  ///< ids of its workers here
  double samples_per_second = 0;       ///< over the last 10 s, like bytes_per_second
  double bytes_per_second = 0;
  double round_trip_seconds = 0;
  std::string version{};              ///< the host's version of penstock
  std::uint32_t cores = 0;            ///< cores that its workers may use
  std::uint32_t workers_offered = 0;  ///< workers that the host offers to this session
  /// How many of these the operator wants to run (`penstock scale host/NAME`).
  std::uint32_t workers_wanted = 0;
  std::optional<std::chrono::system_clock::time_point> joined{};
  std::uint64_t holds = 0;   ///< batches or jobs that its workers hold and that have not arrived here
  std::uint64_t deaths = 0;  ///< deaths of its workers, since it joined
  std::optional<double> cpu_cores{};  ///< cores used by it and its workers, over the last 10 s; empty: not known yet
};

/// The history of the loader hosts with one name; kept after they are gone.
struct host_record {
  std::string name;
  std::string address;  ///< address of the latest host
  bool here = false;
  std::uint64_t samples = 0;  ///< samples received so far; in a pool, jobs
  std::uint64_t bytes = 0;
  double cpu_seconds = 0;
  std::map<std::string, std::uint64_t> losses{};  ///< by cause: closed, silent, damaged
  refused_transfers refused{};
  std::string lost_why{};                ///< the reason, while it is lost
  std::optional<double> lost_seconds{};  ///< how long it has been lost; empty: it is not lost
};

/// How long a session without workers has waited for a loader host to join.
struct hosts_wait {
  double seconds = 0;        ///< so far
  double limit_seconds = 0;  ///< [loader.hosts] wait
};

/// A process that the driver's management library (NVML) sees on the GPU. In a container the pid may belong
/// to another pid namespace.
struct gpu_process {
  std::int64_t pid = 0;
  std::uint64_t bytes = 0;  ///< bytes of device memory; 0: unknown
};

/// What the stream waits for when a batch is due and there has been no progress for 5 s.
struct stall_report {
  stall_kind kind = stall_kind::nobody;
  std::string text;                     ///< "waiting for worker/3, which has ..."
  double seconds = 0;                   ///< time since the last progress
  std::optional<std::uint32_t> worker;  ///< if the stream waits for one worker
  std::string sample{};                 ///< in a data loader: the sample that this worker is loading, if known
  /// How often this sample, or else the worker's current sample, has hung before.
  std::uint32_t hung_before = 0;
  bool suspended = false;               ///< the process of this worker, or of the GPU owner, is suspended
};

/// What the stream waited for, as shares of the last 10 s.
struct limits_status {
  double storage = 0;
  double decode = 0;
  double order = 0;
  double wire = 0;
  double convert = 0;
  double consumer = 0;
  double start = 0;
  std::string verdict;  ///< one sentence: the first one that `penstock why` prints
  std::string hosts{};  ///< whether the stream needs its loader hosts; empty: it has none, or nothing was measured
};

struct session_status {
  std::string session;
  std::int32_t pid = 0;
  session_state state = session_state::ok;
  run_outcome outcome = run_outcome::running;
  std::uint64_t epoch = 0;
  std::uint64_t batches_delivered = 0;
  std::uint64_t samples_delivered = 0;
  std::uint64_t samples_expected = 0;  ///< samples of the whole run; 0 until the dataset is known
  /// Samples of delivered batches, including those that failed or are quarantined.
  std::uint64_t samples_done = 0;
  /// Samples before the position where this run began: not 0 if it was resumed, or is a restarted rank.
  std::uint64_t samples_before = 0;
  /// Samples of the dataset: their numbers are smaller than this. Empty: unknown, or it has no length.
  std::optional<std::uint64_t> dataset_samples{};
  std::uint64_t batches_expected = 0;  ///< in a data loader: batches of its current pass; 0: unknown
  std::uint64_t batches_done = 0;      ///< in a data loader: batches delivered or left out so far in that pass
  std::uint64_t bytes_uploaded = 0;  ///< tensor bytes copied to the device
  std::uint32_t slots_per_worker = 0;  ///< batches that a worker may hold; 0 until the dataset is known
  device_report gpu;
  child_state gpu_state = child_state::idle;
  /// Pid of the GPU owner: the session's own with placement = embedded; empty: no owner runs.
  std::optional<std::int32_t> gpu_pid;
  std::string gpu_placement;            ///< embedded, process
  std::uint32_t gpu_restarts = 0;
  /// All processes on the GPU, the owner's included, polled
  /// every 10 s. Empty if NVML is missing or was not polled yet.
  std::optional<std::vector<gpu_process>> gpu_processes{};
  std::vector<worker_status> workers;
  std::uint32_t worker_restarts = 0;  ///< as in run_report: `restarts`
  std::uint64_t quarantined = 0;
  std::uint64_t failed = 0;
  hedge_counts hedges;
  std::string hosts_join_at{};         ///< [loader.hosts] listen, with the actual port; empty: no hosts
  std::vector<std::string> hosts_called{};  ///< the addresses in [loader.hosts] connect
  std::vector<host_status> hosts{};
  std::vector<host_record> host_records{};  ///< by name
  std::optional<hosts_wait> waits_for_hosts{};
  std::uint64_t workers_ended_unexpectedly = 0;  ///< total of unexpected ends, as in run_report
  std::uint64_t owners_ended_unexpectedly = 0;   ///< deaths of GPU owners, as in run_report
  std::optional<owner_death_report> last_owner_death{};
  death_costs deaths_cost{};
  std::vector<hung_work> hung{};  ///< the last 64
  std::optional<pool_statistics> jobs{};  ///< only for a pool
  std::optional<group_status> group{};    ///< only for a rank of a group
  /// What the stream waits for, checked every second. Empty: there is progress, or nothing is due.
  std::optional<stall_report> stalled{};
  std::optional<std::chrono::system_clock::time_point> started{};  ///< when the first batch was requested
  double uptime_seconds = 0;  ///< from `started` until now, or until the end of the run
  std::string config_file{};  ///< session_options::config_file
  std::optional<double>
      rate{};  ///< samples (in a pool, jobs) per second, over the last 10 s; empty: not measured yet
  std::optional<double> eta_seconds{};  ///< remaining time at this rate; empty: unknown
  std::string failure{};                ///< why the run failed; empty if it did not
  std::optional<failure_report> last_failure{};  ///< the last sample that failed
  limits_status limits{};
};

}  // namespace penstock
