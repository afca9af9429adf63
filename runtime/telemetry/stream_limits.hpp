// What limited the stream during the last 10 s: attributes the time in which the consumer waited to one of seven causes. Used
// for `limits` in status, `penstock why` and the metrics. Pure; actors/host/run calls it five times a second.
//
// The consumer waited for the head: the next batch in order. What held up the head says what the stream waited for:
//
//   storage    its worker was reading                      wire       it was being copied to the device, or was on its way from
//                                                                     a loader host
//   decode     its worker was decoding or transforming,    convert    the device was converting it
//              ran code whose reads are not timed, or
//              waited for a core
//   order      it was stalled while later batches were ready, or slots were so few (or batches so small) that workers idled
//   start      no living worker held it, or its device was not open; also while the owner's process is suspended or being replaced
//   consumer   the consumer did not ask for a batch, or held every device buffer
//
// A finished wait is attributed from the batch's timestamps. A wait in progress is attributed by the head's state at
// each look, and again from the timestamps when it is over. A pool of jobs has no batches: its time is sampled, and
// wire and convert do not occur.
#pragma once

#include "runtime/base/batch_times.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/worker_look.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace penstock::telemetry {

enum class limit : std::uint8_t { storage, decode, order, wire, convert, consumer, start };
inline constexpr std::size_t limit_count = 7;
/// "storage", ...
[[nodiscard]] std::string_view name_of(limit l) noexcept;

struct limited_jobs {
  std::uint64_t waiting = 0;
  std::uint64_t running = 0;
  bool callers_wait = false;
  bool callers_hold_everything = false;
  /// Only for a data loader: how long its consumer has waited so far.
  std::optional<nanoseconds> consumer_waited{};
  bool any_ended = false;  ///< a job has ended
  std::vector<slow_load> slow_loads{};  ///< of a data loader: the latest ones, also those of earlier looks
};

/// The run at one moment.
struct limit_facts {
  std::vector<batch_passage> passages;  ///< all that are in flight, then those released since the previous look
  std::vector<worker_look> workers;
  std::optional<worker_look> sacrificial{};  ///< not among `workers`; it tries alone a sample that may have killed others
  std::optional<steady_time> waits_since;  ///< set while the consumer waits for a batch
  steady_time begun = never;               ///< the first demand
  std::uint32_t slots_per_worker = 1;
  bool device_ready = true;
  bool owner_is_frozen = false;  ///< its process is suspended
  bool owner_is_elsewhere = false;  ///< its timestamps arrive only when a batch is delivered
  bool is_paused = false;
  bool is_over = false;
  std::uint64_t seeks = 0;  ///< so far; each one drops the batches in flight
  std::optional<limited_jobs> jobs;
};

/// The last 10 s, or the time since the first demand if that is shorter.
struct limit_reading {
  double seconds = 0;  ///< length of that time
  std::array<double, limit_count> share{};
  double beginning = 0;  ///< share of the time before the first batch (in a pool, before the first job ended)
  std::array<double, limit_count> share_of_beginning{};  ///< the part of `share` that falls into that time
  /// Total time so far, including the wait in progress, that the stream waited for batches of workers that died while they
  /// held them, and for dead owners; empty for a pool.
  std::optional<double> lost_seconds{};
  std::uint64_t slow_batches = 0;  ///< total so far: batches with slow samples
  double slow_seconds = 0;         ///< total time so far, without the wait in progress, that the stream waited for slow samples

  // Figures for the advice.
  std::uint32_t workers = 0;  ///< workers that are ready now
  double busy = 0;            ///< share of the workers' time in which they worked
  double cpu = 0;             ///< share of a worker's time in which its thread used a core
  double core_wait = 0;       ///< share of a worker's time in which it had no core
  double start_core_wait = 0;  ///< the same for starting workers
  double batches_per_second = 0;
  double samples_a_batch = 0;
  std::uint32_t remote = 0;  ///< those of `workers` that are on loader hosts
  double working = 0;        ///< average number of workers that worked
  double link = 0;           ///< share of the time in which batches were on their way from loader hosts; part of `wire`
  double held = 0;  ///< share of the time in which the consumer asked, but held every device buffer (in a pool: all memory)
  double spare = 0;         ///< share of the time in which no worker worked because the consumer asked for nothing
  double owner_frozen = 0;  ///< share of the time in which the owner's process was suspended
  double owner_down = 0;    ///< share of the time in which it was being replaced
  struct stalled_head {
    std::uint32_t worker = 0;
    double seconds = 0;
    std::optional<std::uint64_t> sample{};  ///< its slowest sample; empty: unknown, or the one that the worker is loading now
    bool is_loading = false;                ///< it still stalls
  };
  std::optional<stalled_head> stall;  ///< the longest one, if most of `order` is stalls
  struct awaited_sample {
    std::uint32_t worker = 0;
    double seconds = 0;                     ///< how long it took, or has taken so far
    std::optional<std::uint64_t> sample{};  ///< empty: the one that the worker is loading now
    std::string name{};                     ///< empty: limit_context knows it
  };
  double slow_share = 0;                      ///< share of the time in which the stream waited for slow samples; part of other shares
  std::vector<awaited_sample> slow_samples;  ///< the slowest of them, the slowest first
  double no_core = 0;                         ///< share of the time in which the next batch's worker had no core; part of `decode`
  struct slow_worker {
    std::uint32_t worker = 0;
    double factor = 1;     ///< its time for a sample, divided by that of its peers
    double core_wait = 0;  ///< share of its time in which it had no core, if that is why it is slow
  };
  std::optional<slow_worker> slow;
  struct lost_batch {
    std::uint32_t worker = 0;
    double share = 0;  ///< share of the time that the stream waited for batches that this worker held when it died
  };
  std::optional<lost_batch> lost;  ///< the worker that cost the most time in this way
  struct worker_load {
    std::uint32_t worker = 0;
    double seconds_a_sample = 0;  ///< without slow samples: median of its last batches
    double reading = 0;           ///< share of that time in reads, from memory or storage, without waits for a core: median of the same batches
  };
  std::vector<worker_load> loads;  ///< for each worker that is ready and has loaded a batch

  /// Share of the workers' time in which they worked, but neither ran nor waited for a core.
  [[nodiscard]] double blocked() const noexcept { return busy > cpu + core_wait ? busy - cpu - core_wait : 0; }
  [[nodiscard]] double of(limit l) const noexcept { return share[static_cast<std::size_t>(l)]; }
  /// Share of the time in which the consumer waited.
  [[nodiscard]] double waited() const noexcept;
  /// Whether the consumer takes batches in bursts: between bursts it left all workers idle for longer than it waited during them.
  [[nodiscard]] bool in_bursts() const noexcept;
  /// What to change first: the largest cause of waits if the waits matter, otherwise the consumer. Empty: nothing was measured.
  [[nodiscard]] std::optional<limit> largest() const noexcept;
  /// The reading without the beginning, which says nothing about the rest of a short run. Empty: there is no beginning,
  /// or it took most of the time.
  [[nodiscard]] std::optional<limit_reading> after_beginning() const;
};

/// Not thread-safe.
class stream_limits {
 public:
  static constexpr nanoseconds span = std::chrono::seconds(10);

  /// If two looks are further apart than this, the process was suspended, and measuring starts over.
  static constexpr nanoseconds longest_turn = std::chrono::seconds(3);

  /// Call with times that do not decrease. Once the run is over, the reading stays that of its last 10 s.
  limit_reading look(steady_time now, const limit_facts& facts);

  /// How many entries the last look went through: bounded, however long a wait lasts.
  [[nodiscard]] std::size_t entries() const noexcept { return settled_.size() + estimated_.size() + work_.size() + outages_.size(); }

 private:
  struct bucket {
    std::array<double, limit_count> seconds{};
    std::array<double, limit_count> of_beginning{};
    double ready = 0;  // seconds of ready workers
    double busy = 0;
    double cpu = 0;
    double core_wait = 0;
    double starting = 0;  // seconds of starting workers
    double start_core_wait = 0;
    std::uint64_t batches = 0;
    std::uint64_t samples = 0;
    double held = 0;
    double owner_frozen = 0;
    double owner_down = 0;
    double stalled = 0;
    double link = 0;
    double slow_seconds = 0;
    double no_core = 0;
    std::vector<limit_reading::awaited_sample> slow_samples;
    std::optional<limit_reading::stalled_head> stall;
    std::optional<limit_reading::slow_worker> slow;
    std::map<std::uint32_t, double> lost;  // seconds by worker
  };
  /// The workers' time between two looks.
  struct work_seen {
    std::int64_t at = 0;
    double seconds = 0;
    double ready = 0;  // seconds of ready workers
    double busy = 0;
    bool waited = false;  // whether the consumer waited
  };
  struct interval {
    std::int64_t from = 0;
    std::int64_t to = 0;
  };
  struct earlier_lease {
    batch_passage of;
    std::int64_t ended = 0;  // since then its worker has not worked on it
    bool reads = false;      // it was reading then
    bool died = true;        // false: the sacrificial worker has tried a sample of it
  };
  struct worker_memory {
    std::uint32_t incarnation = 0;
    nanoseconds cpu{0};
    nanoseconds core_wait{0};
    double starved = 0;        // share of the last second in which it had no core
    double running = 0;        // the same for the time on a core
    bool reads = false;  // at the last look
    nanoseconds received{0};
    double receiving = 0;  // share of the last second in which its batches were on their way
    double working = 0;    // share of the last second in which it worked
    struct load {
      double with_slow = 0;     // seconds per sample
      double without_slow = 0;  // the same without what slow samples took longer than usual
      std::uint64_t slow_sample = 0;  // if these differ: the slowest one
    };
    std::deque<load> loads;  // its last batches
    double usual = 0;        // their median
    std::deque<double> readings;  // share of reads in the same batches
    double reading = 0;           // their median
  };

  void forget_until(std::int64_t now);
  void forget_batches();
  [[nodiscard]] bucket& at(std::int64_t ns);
  template <class Act>
  void spread(std::int64_t from, std::int64_t to, Act act) const;
  void add(limit what, std::int64_t from, std::int64_t to, double weight = 1);
  void add_to(double bucket::*figure, std::int64_t from, std::int64_t to, double weight = 1);
  /// Then the cause belongs to the beginning: after_beginning() could not tell it apart.
  [[nodiscard]] bool is_settling_the_first() const noexcept { return began_ == 0 && into_ == &settled_; }
  void add_held(std::int64_t from, std::int64_t to);
  void add_stall(const limit_reading::stalled_head& head, std::int64_t from, std::int64_t to);
  void add_lost(const std::vector<earlier_lease>& held, std::int64_t from, std::int64_t again, std::int64_t to, const limit_facts& facts);
  [[nodiscard]] double cost_of(const std::vector<earlier_lease>& held, std::int64_t from, std::int64_t to) const;
  [[nodiscard]] static const worker_look* look_of(const batch_passage& b, const limit_facts& facts);
  void note_lost(std::int64_t now, const limit_facts& facts);
  void note_pause(std::int64_t now, const limit_facts& facts);
  void note_outage(std::int64_t now, const limit_facts& facts);
  void measure_workers(std::int64_t now, const limit_facts& facts);
  void remember(const limit_facts& facts);
  void settle(const batch_passage& b, const limit_facts& facts);
  void settle_load(const batch_passage& b, std::int64_t from, std::int64_t to, const limit_facts& facts);
  void add_work(std::uint32_t worker, double reading, std::int64_t from, std::int64_t to);
  void add_no_core(double weight, std::int64_t from, std::int64_t to);
  void add_slow(const limit_reading::awaited_sample& sample, double weight, std::int64_t from, std::int64_t to);
  void estimate(std::int64_t now, const limit_facts& facts);
  void estimate_head(std::int64_t from, std::int64_t now, const limit_facts& facts);
  void estimate_load(const batch_passage& head, std::int64_t from, std::int64_t now, const limit_facts& facts);
  void add_unfinished(const batch_passage& b, std::int64_t from, std::int64_t to, bool reads, bool still_loads, const limit_facts& facts);
  void sample_jobs(std::int64_t now, const limit_facts& facts);
  void sample_batches(std::int64_t now, const limit_facts& facts, std::optional<nanoseconds> waited_before);
  void add_slow_loads(const std::vector<slow_load>& latest);
  [[nodiscard]] std::optional<double> typical_of(std::uint32_t worker) const;
  [[nodiscard]] bool is_held_up_by_link(std::uint32_t worker) const;
  void add_link(std::int64_t from, std::int64_t to);
  [[nodiscard]] std::optional<double> slowness_of(std::uint32_t worker) const;
  [[nodiscard]] bool slows_all_samples(std::uint32_t worker) const;
  struct core_use {
    double running = 0;
    double starved = 0;
  };
  [[nodiscard]] core_use core_use_of(std::uint32_t worker) const;
  [[nodiscard]] double without_core_wait(std::uint32_t worker, double reading) const;
  [[nodiscard]] bool others_are_ready(const batch_passage& head, std::int64_t when,
                                      const limit_facts& facts) const;
  [[nodiscard]] bool nothing_was_behind(const batch_passage& b) const;
  [[nodiscard]] double idle_share() const;
  [[nodiscard]] double spare_seconds(std::int64_t first) const;
  [[nodiscard]] limit_reading read(std::int64_t now, const limit_facts& facts) const;

  std::map<std::int64_t, bucket> settled_;         // by time; for finished waits, and for the workers
  std::map<std::int64_t, bucket> estimated_;       // for the wait in progress; rebuilt at each look
  std::map<std::int64_t, bucket>* into_ = &settled_;
  std::map<stream_position, batch_passage> known_;  // batches not taken yet, and the last ones taken
  std::map<stream_position, std::vector<earlier_lease>> lost_;  // batches that workers have lost: their leases, in turn
  std::map<std::uint32_t, worker_memory> workers_;
  std::deque<work_seen> work_;
  std::optional<nanoseconds> consumer_waited_;  // as of the last look; only for a data loader
  std::uint64_t slow_loads_seen_ = 0;           // the last one's number; only for a data loader
  std::deque<interval> outages_;  // times in which the owner could not work
  std::deque<interval> pauses_;   // they belong to no limit
  bool paused_ = false;           // at the last look
  std::int64_t taken_ = 0;     // when the consumer took its last batch; 0: it has taken none
  std::int64_t released_ = 0;  // when the consumer released that batch; 0: it has not
  std::int64_t began_ = 0;     // when the beginning ended; 0: it has not
  double lost_seconds_ = 0;    // limit_reading::lost_seconds, without the wait in progress
  double lost_now_ = 0;        // of the wait in progress
  double down_ = 0;            // seconds of the wait in progress in which the owner was being replaced
  std::uint64_t slow_batches_ = 0;  // limit_reading::slow_batches
  double slow_seconds_ = 0;         // limit_reading::slow_seconds
  std::uint64_t seeks_ = 0;
  std::int64_t looked_ = 0;
  std::int64_t counted_from_ = 0;
  std::int64_t oldest_ = 0;  // earlier times are not attributed any more
  std::int64_t waits_from_ = 0;  // when the wait in progress began; 0: there is none
  bool over_ = false;
  limit_reading last_;
  double wire_part_ = 1;  // copying's share of the time to copy and convert the last batch; used if the owner is in another process
};

}  // namespace penstock::telemetry
