// What limited the stream during the last 10 s: attributes each wait of the consumer to one of seven causes. Used
// for `limits` in status, `penstock why` and the metrics. Pure; actors/host/run calls it five times a second.
//
// The consumer waited for the head: the next batch in order. The reason why the head was late is the limit:
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
#include "runtime/base/lost_wait.hpp"
#include "runtime/base/worker_look.hpp"
#include "runtime/telemetry/limit_buckets.hpp"
#include "runtime/telemetry/limit_reading.hpp"
#include "runtime/telemetry/worker_measures.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace penstock::telemetry {

struct limited_jobs {
  std::uint64_t waiting = 0;
  std::uint64_t running = 0;
  bool callers_wait = false;
  bool callers_hold_everything = false;
  /// Only for a data loader: how long its consumer has waited so far.
  std::optional<nanoseconds> consumer_waited{};
  bool any_ended = false;  ///< whether a job has ended
  std::vector<slow_load> slow_loads{};  ///< of a data loader: the latest slow loads, including those of earlier looks
  std::vector<lost_wait> lost_waits{};  ///< of a data loader: the same for its waits, and the one in progress
};

/// The run at one moment.
struct limit_facts {
  /// All batches in flight, then those released since the previous look.
  std::vector<batch_passage> passages;
  std::vector<worker_look> workers;
  std::optional<worker_look> sacrificial{};  ///< not among `workers`; tries a suspect sample alone
  std::optional<steady_time> waits_since;  ///< set while the consumer waits for a batch
  steady_time begun = never;               ///< when the first batch was requested
  std::uint32_t slots_per_worker = 1;
  bool device_ready = true;
  bool owner_is_frozen = false;  ///< whether the owner's process is suspended
  std::uint64_t owner_deaths = 0;  ///< unexpected deaths so far
  bool owner_is_elsewhere = false;  ///< the owner's timestamps arrive only when a batch is delivered
  bool is_paused = false;
  bool is_over = false;
  std::uint64_t seeks = 0;  ///< number of seeks so far; each drops the batches in flight
  std::optional<limited_jobs> jobs;
};

/// Not thread-safe.
class stream_limits {
 public:
  static constexpr nanoseconds span = worker_measures::span;

  /// If two looks are further apart than this, the process was suspended, and measuring starts over.
  static constexpr nanoseconds longest_turn = std::chrono::seconds(3);

  /// Call with times that do not decrease. Once the run is over, always returns the reading of its last 10 s.
  limit_reading look(steady_time now, const limit_facts& facts);

  /// How many entries the last look went through: bounded, however long a wait lasts.
  [[nodiscard]] std::size_t entries() const noexcept { return buckets_.entries() + workers_.entries(); }

 private:
  struct earlier_lease {
    batch_passage of;
    std::int64_t ended = 0;  // when the worker stopped working on the batch
    bool reads = false;      // whether the worker was reading when it stopped
    // Whether the worker died; false: the sacrificial worker has tried a sample of the batch.
    bool died = true;
  };
  void forget_until(std::int64_t now);
  void forget_batches();
  void add_lost(const std::vector<earlier_lease>& held, std::int64_t from, std::int64_t again, std::int64_t to, const limit_facts& facts);
  [[nodiscard]] double cost_of(std::int64_t first_leased, std::int64_t from, std::int64_t to) const;
  [[nodiscard]] static const worker_look* look_of(const batch_passage& b, const limit_facts& facts);
  void note_lost(std::int64_t now, const limit_facts& facts);
  void note_pause(std::int64_t now, const limit_facts& facts);
  bool note_outage(std::int64_t now, const limit_facts& facts);
  void remember(const limit_facts& facts);
  void settle(const batch_passage& b, const limit_facts& facts);
  void settle_load(const batch_passage& b, std::int64_t from, std::int64_t to, const limit_facts& facts);
  void add_work(std::uint32_t worker, double reading, std::int64_t from, std::int64_t to);
  void estimate(std::int64_t now, const limit_facts& facts);
  void estimate_head(std::int64_t from, std::int64_t now, const limit_facts& facts);
  void estimate_load(const batch_passage& head, std::int64_t from, std::int64_t now, const limit_facts& facts);
  void add_unfinished(const batch_passage& b, std::int64_t from, std::int64_t to, bool reads, bool still_loads, const limit_facts& facts);
  void sample_jobs(std::int64_t now, const limit_facts& facts);
  void sample_batches(std::int64_t now, const limit_facts& facts, std::optional<nanoseconds> waited_before);
  void add_slow_loads(const std::vector<slow_load>& latest);
  void add_lost_waits(const std::vector<lost_wait>& latest);
  [[nodiscard]] std::optional<double> typical_of(std::uint32_t worker) const;
  [[nodiscard]] bool others_are_ready(const batch_passage& head, std::int64_t when,
                                      const limit_facts& facts) const;
  [[nodiscard]] bool nothing_was_behind(const batch_passage& b) const;
  [[nodiscard]] limit_reading read(std::int64_t now, const limit_facts& facts) const;

  limit_buckets buckets_;
  std::map<stream_position, batch_passage> known_;  // batches not taken yet, and the last ones taken
  std::map<stream_position, std::vector<earlier_lease>> lost_;  // the lost leases of each batch, in order
  worker_measures workers_;
  std::optional<nanoseconds> consumer_waited_;  // as of the last look; only for a data loader
  std::uint64_t slow_loads_seen_ = 0;           // the last one's number; only for a data loader
  std::uint64_t lost_waits_seen_ = 0;           // the same
  bool paused_ = false;           // at the last look
  std::int64_t taken_ = 0;     // when the consumer took its last batch; 0: it has taken none
  std::int64_t released_ = 0;  // when the consumer released that batch; 0: it has not
  double lost_seconds_ = 0;    // limit_reading::lost_seconds, without the wait in progress
  double lost_now_ = 0;        // the part of lost_seconds that belongs to the wait in progress
  // Seconds of the wait in progress in which the owner was being replaced, or was suspended and then killed.
  double down_ = 0;
  double frozen_ = 0;          // seconds for which the owner has been suspended
  std::uint64_t owner_deaths_ = 0;
  std::uint64_t slow_batches_ = 0;  // limit_reading::slow_batches
  std::uint64_t seeks_ = 0;
  std::int64_t looked_ = 0;
  std::int64_t waits_from_ = 0;  // when the wait in progress began; 0 if the consumer is not waiting
  bool over_ = false;
  limit_reading last_;
  // Copying's share of the time that it took to copy and convert the last batch; used if the owner is in
  // another process.
  double wire_part_ = 1;
};

}  // namespace penstock::telemetry
