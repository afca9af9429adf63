// When each batch reached each stage: a bounded ring, written by the scheduler and the GPU owner, read by
// `penstock trace`, `top` and the metrics. A timestamp costs one store, and takes no
// lock. It also keeps the slowest samples; recording one takes a lock.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/slow_samples.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace penstock {

/// The stages, in the order in which a batch reaches them. A timestamp says when the batch reached the stage.
enum class batch_stage : std::uint8_t {
  leased,     ///< the scheduler sent the lease
  begun,      ///< the worker started it
  loaded,     ///< the worker's report arrived
  ordered,    ///< it was the next batch, and the owner got the order to upload it
  submitted,  ///< a device buffer was free, the copy was queued
  copied,     ///< the copy is complete, the slot free
  ready,      ///< converted, so the consumer may take it
  taken,      ///< the consumer has it
  released,   ///< the consumer gave the buffer back
};
inline constexpr std::size_t batch_stages = 9;
/// "leased", ...
[[nodiscard]] std::string_view name_of(batch_stage stage) noexcept;

/// A batch in the ring.
struct batch_passage {
  std::uint64_t number = 0;  ///< counts released batches: 1, 2, 3, ...; 0: not released yet
  stream_position position = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint32_t worker = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t slot = 0;
  std::uint32_t samples = 0;
  std::array<std::int64_t, batch_stages> at{};  ///< steady clock, nanoseconds; 0: not (yet) known
  std::int64_t demanded = 0;    ///< when the consumer asked for it, on the same clock; 0: not (yet) known
  std::int64_t reading_ns = 0;  ///< the part of its load spent waiting for storage
  std::int64_t slow_ns = 0;     ///< how much longer than usual its slow samples took
  std::int64_t slowest_ns = 0;  ///< how long its slowest sample took; 0: no sample was slow
  std::uint64_t slowest = 0;    ///< that sample
  std::int64_t first_leased = 0;  ///< when it was first leased, if a worker lost it; 0: this lease is its first

  [[nodiscard]] std::int64_t time_of(batch_stage s) const noexcept { return at[static_cast<std::size_t>(s)]; }
  /// The last stage that has a timestamp.
  [[nodiscard]] batch_stage reached() const noexcept;
};

/// The time from one stage to the next; there is a histogram of each.
struct stage_span {
  std::string_view name;  ///< "load", "copy", ...
  batch_stage from;
  batch_stage to;
};
[[nodiscard]] const std::array<stage_span, 8>& stage_spans() noexcept;

/// Upper bounds of histogram buckets: 10 us to 100 s, each about three times the one before.
[[nodiscard]] const std::vector<double>& stage_bounds_seconds() noexcept;

/// What a worker reports about loading a batch.
struct load_times {
  nanoseconds busy{0};
  nanoseconds reading{0};  ///< the part of `busy` spent waiting for storage
  nanoseconds slow{0};     ///< the part of `busy` by which its slow samples took longer than usual
  nanoseconds slowest{0};  ///< batch_passage::slowest_ns
  std::uint64_t slowest_sample = 0;
};

struct stage_histogram {
  std::vector<std::uint64_t> counts;  ///< one count per bound, and one for longer times; not cumulative
  std::uint64_t total = 0;
  double seconds = 0;
};

class batch_times {
 public:
  /// `capacity`: batches kept in the ring, including those in flight.
  explicit batch_times(std::size_t capacity = 4096);
  ~batch_times();
  batch_times(const batch_times&) = delete;
  batch_times& operator=(const batch_times&) = delete;

  /// A lease was sent: starts the batch's record, or starts it again. Call from one thread.
  void lease(const batch_passage& batch, steady_time now) noexcept;
  /// Records when the batch reached a stage. Ignored if the batch has left the ring. Call each stage from one
  /// thread; different stages may use different threads. `released` must come last.
  void note(stream_position position, batch_stage stage, steady_time when) noexcept;
  /// The worker's report arrived. Clamps its times to what is possible. Returns how long the batch took, clamped in
  /// the same way.
  nanoseconds note_loaded(stream_position position, const load_times& times, steady_time when) noexcept;
  /// Records one of the slowest samples of a batch. Takes a lock.
  void note_sample(const timed_sample& sample, std::uint32_t worker, steady_time when) { slowest_.note(sample, worker, when); }
  /// The consumer asked for the batch that it got. Call before `taken`, from the same thread.
  void note_demanded(stream_position position, steady_time when) noexcept;
  /// Drops the batches in flight, for a seek. Call from the thread that calls lease().
  void forget() noexcept;
  /// How many times forget() was called.
  [[nodiscard]] std::uint64_t seeks() const noexcept { return seeks_.load(std::memory_order_acquire); }

  /// The batches released after batch `number`, in order of release, at most `limit`.
  [[nodiscard]] std::vector<batch_passage> released_after(std::uint64_t number, std::size_t limit) const;
  /// A batch in the ring.
  [[nodiscard]] std::optional<batch_passage> find(stream_position position) const noexcept;
  /// The batches in flight, by position.
  [[nodiscard]] std::vector<batch_passage> under_way() const;
  [[nodiscard]] std::uint64_t released() const noexcept { return released_.load(std::memory_order_acquire); }
  /// The slowest samples of the last minutes, the slowest first.
  [[nodiscard]] std::vector<slow_sample> slowest(steady_time now) const { return slowest_.at(now); }
  /// The histograms of all spans, in the order of stage_spans().
  [[nodiscard]] std::vector<stage_histogram> histograms() const;

 private:
  struct entry;
  struct tally;

  [[nodiscard]] std::optional<batch_passage> read(const entry& e) const noexcept;
  void finish(entry& e) noexcept;

  const std::size_t capacity_;
  std::unique_ptr<entry[]> ring_;
  std::unique_ptr<tally[]> tallies_;  // one per span; written by the thread that notes `released`
  std::atomic<std::uint64_t> released_{0};
  std::atomic<std::uint64_t> seeks_{0};
  slowest_samples slowest_;
};

}  // namespace penstock
