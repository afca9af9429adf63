// Supervises the loader workers: decides which to start, introduce, watch, replace and end. Pure: events and
// the time come in, commands come out of advance(). Driven by actors/supervisor/supervisor, which translates
// messages, reads /proc and the flight recorders, and collects the contents of death reports.
//
// The life of a worker:
//
//   started -- hello --> introduced -- says what it serves --> described -- memory for it --> assigned -- ready --> ready
//   (handed to the scheduler) ... exited --> ended --> decided by the scheduler --> the pool decides about a replacement
//
// It combines three pure parts: the pool of places, each process's termination, and the clocks of the hang
// detector.
#pragma once

#include "runtime/supervision/hang_detector.hpp"
#include "runtime/supervision/pool.hpp"
#include "runtime/supervision/termination.hpp"

#include <penstock/config.hpp>

#include <map>

namespace penstock::supervision {

struct worker_rules {
  pool_settings pool;
  hang_settings clocks;
  termination_settings ending;
  /// Time to exit, for a worker that has finished and was asked to stop.
  nanoseconds leave_deadline{10'000'000'000};
  std::uint64_t memory_max_bytes = 0;          ///< limit of one worker's private memory; 0: no limit
  std::uint64_t recycle_after_samples = 0;     ///< 0: never
  exclusive_rule exclusive = exclusive_rule::report;
};

// ---- commands ---------------------------------------------------------------------------------------------

struct start_worker {
  worker_ref who;
  bool sacrificial = false;
};
/// Answer its hello, and tell it which dataset to open.
struct introduce_worker {
  worker_ref who;
};
/// The worker is ready, so the scheduler may lease batches to it.
struct hand_over_worker {
  worker_ref who;
  bool sacrificial = false;
};
/// Tell the scheduler to give the worker no more leases. The worker is asked to stop once it has none left.
struct retire_worker {
  worker_ref who;
  /// The worker finishes only its current batch, and other workers load the others again.
  bool after_current_batch = false;
};
/// Ask the process to finish its sample and exit.
struct stop_worker {
  worker_ref who;
};
struct signal_worker {
  worker_ref who;
  int number = 0;
};
/// This worker is about to be killed, for this reason; for the log. The process still exists.
struct killing_worker {
  worker_ref who;
  std::optional<pid_t> pid;  ///< empty: its start has not returned
  death_cause cause = death_cause::unknown;
  std::string reason;
};
/// The worker survives SIGKILL, so other workers get its leases.
struct write_off_worker {
  worker_ref who;
  std::optional<pid_t> pid;    ///< empty: its start has not returned
  bool blames_sample = false;  ///< whether its current sample is suspected
  bool took_too_long = false;  ///< whether it was being killed because its work took too long
};
/// The worker is reaped. Ask the scheduler whether a sample is blamed, and pass the
/// answer to blame_decided().
struct decide_blame {
  worker_ref who;
  std::string cause;           ///< in words
  bool blames_sample = false;  ///< whether its current sample is suspected
  bool host_lost = false;      ///< whether it is gone because its loader host is gone
  bool took_too_long = false;  ///< whether it was killed because its work took too long
};
/// The worker exceeded its memory limit, and is replaced when its current batch is done. Sent once for each worker.
struct memory_exceeded {
  worker_ref who;
  pid_t pid = -1;
  std::uint64_t bytes = 0;
};
/// The worker, or a process that it started, uses the GPU, and the config says to report that.
struct gpu_use_reported {
  worker_ref who;
  std::string use;
};
struct workers_failed {
  failure reason;
};
/// The session is ending and no process is left.
struct workers_closed {};

using worker_command =
    std::variant<start_worker, introduce_worker, hand_over_worker, retire_worker, stop_worker, signal_worker,
                 killing_worker, write_off_worker, decide_blame, memory_exceeded, gpu_use_reported,
                 sacrificial_failed, workers_failed, workers_closed>;

/// What the supervisor reads about one worker when it polls.
struct worker_sign {
  std::uint32_t worker = 0;
  std::uint64_t heartbeats = 0;
  std::uint64_t work_mark = 0;
  bool busy = false;  ///< whether it works on a sample, or holds leases but has not begun a sample
  bool traced = false;                 ///< whether a debugger is attached
  std::optional<nanoseconds> limit{};  ///< the current job's time limit
  nanoseconds worked{0};               ///< how long it has worked on `work`; 0: unknown
  std::string work;                    ///< "it has been loading 'cat.jpg'"; "it has not begun its next batch"
  std::string wait_channel;            ///< the kernel function that its thread waits in; empty: unknown
};

class worker_supervision {
 public:
  explicit worker_supervision(const worker_rules& rules);

  // Calls from the session and operators.
  void open(steady_time now);
  /// Starts no more workers. Workers finish their sample, and are killed after `patience`. A second call
  /// can only shorten this time.
  void close(steady_time now, nanoseconds patience);
  void scale(std::uint32_t workers, steady_time now) { pool_.scale(workers, now); }
  /// `at_once`: the worker is killed instead of finishing its leases, and nothing is blamed.
  void restart(std::uint32_t worker, steady_time now, bool at_once = false);
  void drain(std::uint32_t worker) { pool_.drain(worker); }
  void want_sacrificial(bool wanted, steady_time now) { pool_.want_sacrificial(wanted, now); }

  // Calls from loader hosts.
  void host_joined(std::uint32_t worker, steady_time now) { pool_.host_joined(worker, now); }
  /// `lost`: the worker's process, if any, has ended with the host. Otherwise the host waits until the worker's leases are done.
  void host_left(std::uint32_t worker, bool lost);
  void host_rests(std::uint32_t worker) { pool_.host_rests(worker); }
  void host_refused(std::string why) { pool_.host_refused(std::move(why)); }

  // Events from the process. Events of another incarnation, or of one that has ended, are dropped.
  void started(worker_ref who, pid_t pid);
  void start_refused(worker_ref who, steady_time now, const failure& why);
  /// `refusal`: why the session cannot work with this program; empty if it can.
  void greeted(worker_ref who, steady_time now, const std::string& refusal);
  /// The worker reported what it serves: a dataset, or the functions of a
  /// pool. Returns false if the message is out of order and must be ignored.
  [[nodiscard]] bool described(worker_ref who, steady_time now);
  /// Returns false if the worker must not get its slots.
  [[nodiscard]] bool prepared(worker_ref who, steady_time now, bool has_memory);
  void ready(worker_ref who, steady_time now);
  void gave_up(worker_ref who, steady_time now, failure why);
  void out_of_turn(worker_ref who, steady_time now, std::string_view message);
  void link_closed(worker_ref who, steady_time now, const std::string& reason);
  void fence(worker_ref who, steady_time now, const std::string& reason);
  /// The worker's current work was cancelled: SIGABRT and 2 s later SIGKILL, or SIGKILL `at_once`.
  void cancel(worker_ref who, steady_time now, bool at_once, const std::string& reason);
  /// The scheduler has asked the worker to stop, because it has no leases left.
  void told_to_stop(worker_ref who, steady_time now);
  void exited(worker_ref who, steady_time now, const process::exit_report& end, bool oom_killed);
  /// What to publish about a death, once blame is decided.
  struct settled {
    std::string cause;           ///< in words
    bool unasked = false;        ///< whether the death was ordered neither by the session nor by an operator
    /// False: the death is expected, because the session is ending, the host takes the worker back, or no
    /// sample needs the sacrificial worker.
    bool worth_telling = false;
    std::optional<nanoseconds> ignored_stop{};  ///< if it was killed: the time between the request to stop and the kill
  };
  /// The scheduler's answer to decide_blame. If the death fails the run, the error contains the cause, then
  /// `during` (", while setting up the dataset") and `last_words`.
  settled blame_decided(worker_ref who, steady_time now, bool blamed, std::uint64_t samples_done,
                        const std::string& last_words, const std::string& during = {});

  /// The current state of all workers, including those being started. Call about every clocks.tick().
  void look(steady_time now, const std::vector<worker_sign>& signs);
  /// Jobs with their own time limit will run. Makes polls frequent enough for the shortest limit.
  void expect_limit(nanoseconds limit) { shortest_limit_ = std::min(shortest_limit_, limit); }
  /// The interval at which to call look().
  [[nodiscard]] nanoseconds tick() const;
  /// Call once a second for each worker. Returns the most private memory that it was seen using, if that is over its limit; otherwise 0.
  std::uint64_t measured(worker_ref who, std::uint64_t private_bytes, std::uint64_t samples_done);
  /// The worker, or a process that it started, was found using the GPU.
  void uses_gpu(worker_ref who, steady_time now, const std::string& use);

  [[nodiscard]] std::vector<worker_command> advance(steady_time now);
  [[nodiscard]] steady_time next_deadline() const;

  [[nodiscard]] const pool& places() const noexcept { return pool_; }
  /// The termination of a worker whose death is not settled yet.
  [[nodiscard]] const termination* ending_of(worker_ref who) const;
  /// Whether to check if the worker uses the GPU.
  [[nodiscard]] bool audits_gpu_use(worker_ref who) const;

 private:
  enum class stage : std::uint8_t { started, introduced, described, assigned, ready };
  struct child {
    child(worker_ref w, bool alone, const termination_settings& rules, steady_time now)
        : who(w), sacrificial(alone), ending(rules, now) {}
    worker_ref who;
    bool sacrificial = false;
    termination ending;
    stage at = stage::started;
    std::optional<pid_t> pid;
    bool draining = false;
    bool gpu_use_known = false;
    std::uint64_t memory_peak = 0;   // 0: not over its limit
    std::optional<failure> gave_up;  // the reason that the worker gave for giving up
    std::optional<process::exit_report> ended;
    std::string cause;  // as text, once the worker has ended
  };

  [[nodiscard]] child* living(worker_ref who);
  [[nodiscard]] const child* find(worker_ref who) const;
  [[nodiscard]] bool may_recycle(worker_ref who) const;
  void retire(child& c, steady_time now);
  void carry_out_pool_commands(steady_time now);
  void enforce_deadlines(steady_time now);
  [[nodiscard]] bool is_no_worker_program(const child& c) const;
  [[nodiscard]] bool died_before_hello(const child& c) const;
  [[nodiscard]] static death death_of(const child& c, bool blamed, std::uint64_t samples_done);

  worker_rules rules_;
  pool pool_;
  hang_detector hangs_;
  std::map<std::uint32_t, child> children_;  // by place; children that live or whose death is not settled yet
  std::vector<worker_command> outbox_;
  late_polls polls_;
  nanoseconds shortest_limit_ = nanoseconds::max();
  bool closing_ = false;
  bool closed_told_ = false;
};

}  // namespace penstock::supervision
