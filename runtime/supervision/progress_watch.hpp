// Detects that the stream makes no progress, and finds what it waits for (awaited.hpp). A stream that stops
// silently is the worst kind of failure, so this reports the cause after 5 s without progress. Pure: facts
// and the time come in, a stall comes out. Driven by actors/host/progress_ticker, once a second.
//
// A start takes longer on a busy machine: until start_patience() has passed, waiting for a start is not a stall.
// The time restarts when the owner or a worker's place becomes ready for the first time.
//
// Progress means that something is completed for the first time: a sample, a stage of a batch after its lease, a job, or a
// sample of the batch that a data loader's consumer waits for. Starts, deaths, leases and heartbeats are no
// progress, and neither is work that is done again after a death: a batch must advance further than ever before.
//
// While workers hang or die, one after the other, on the sample that the stream waits for, other workers may complete
// later batches. That is no progress once the first undelivered batch is tried again, or the stall is
// reported. From then on, only a delivery counts as progress, or an advance of the first undelivered batch.
// A stall counts from the last progress, even if the stream meanwhile waits for something else.
//
// No progress is expected while no batch is due: before the first request, after the end, and while the
// consumer requests nothing and either holds every prepared batch or the session is paused.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/supervision/awaited.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace penstock::supervision {

class progress_watch {
 public:
  enum class news : std::uint8_t { none, stalled, moves_again };

  explicit progress_watch(nanoseconds patience = nanoseconds(5'000'000'000)) : patience_(patience) {}

  /// Returns what has changed; `stalled` again when the stream starts to wait for something of another kind.
  /// Call at least once per patience period: progress is noticed only at the next call.
  news look(steady_time now, const progress_facts& facts);

  /// What stalled() would be after a look at these facts, which is not taken.
  [[nodiscard]] std::optional<stall_report> stalled_at(steady_time now, const progress_facts& facts) const;

  /// The current stall. Empty while there is progress, or none is expected. Its seconds
  /// count from the last progress.
  [[nodiscard]] const std::optional<stall_report>& stalled() const noexcept { return stalled_; }

 private:
  struct movement {
    bool anywhere = false;
    bool at_the_head = false;  // a batch was delivered, or the next batch to deliver advanced
  };
  /// How far a batch has ever got, no matter which workers had it.
  struct furthest {
    batch_stage stage = batch_stage::leased;
    std::uint32_t rows = 0;
    std::pair<std::uint32_t, std::uint32_t> holder{};  // worker and incarnation
    bool is_tried_again = false;                        // an earlier holder has lost it
  };

  [[nodiscard]] movement moved(const progress_facts& facts);
  void add_batches(const progress_facts& facts, movement& found);
  void add_jobs(const pool_statistics& jobs, const progress_facts& facts, movement& found);
  [[nodiscard]] bool started(const progress_facts& facts);

  nanoseconds patience_;
  std::optional<stall_report> stalled_;
  steady_time last_movement_ = never;
  steady_time held_since_ = never;  // when the current stall began, if a pause or drain causes it
  std::map<stream_position, furthest> batches_;  // batches in progress
  std::uint64_t released_ = 0;
  std::uint64_t seeks_ = 0;
  std::uint64_t jobs_ended_ = 0;                    // of a data loader: number of loaded batches
  std::uint64_t delivered_ = 0;                     // batches that a data loader has delivered
  std::pair<batch_step, std::uint64_t> mark_{};  // how far the batch that a data loader delivers next has got
  std::set<std::uint32_t> started_;                 // places that have been ready
  bool owner_started_ = false;
};

}  // namespace penstock::supervision
