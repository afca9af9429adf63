// Detects that the stream makes no progress, and finds what it waits for (awaited.hpp). A stream that stops
// silently is the worst kind of failure, so this reports the cause after 5 s without progress. Pure: facts
// and the time come in, a stall comes out. Driven by actors/host/progress_ticker, once a second.
//
// A start takes longer on a busy machine: until start_patience() has passed, waiting for a start is not a stall.
// The time restarts when the owner or a worker's place becomes ready for the first time.
//
// Progress means that a worker finishes a sample, a batch passes a stage, a job ends, or a worker gets to the next
// sample of the batch that a data loader's consumer waits for. Starts, deaths, heartbeats and restarts of processes do
// not count, because a pool can crash and restart forever. Neither do samples that a replaced worker loads again: as
// long as no batch passes a stage, a place has to get further than its previous workers.
//
// No progress is expected while no batch is due: before the first request, after the end, and while the
// consumer requests nothing while it holds every prepared batch or the session is paused.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/supervision/awaited.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace penstock::supervision {

class progress_watch {
 public:
  enum class news : std::uint8_t { none, stalled, moves_again };

  explicit progress_watch(nanoseconds patience = nanoseconds(5'000'000'000)) : patience_(patience) {}

  /// Returns what has changed; `stalled` again when the stream starts to wait for something of another kind.
  /// Call at least once per patience period: progress between two calls counts at the second one.
  news look(steady_time now, const progress_facts& facts);

  /// Empty while there is progress, or none is expected. Its seconds count from the last progress.
  [[nodiscard]] const std::optional<stall_report>& stalled() const noexcept { return stalled_; }

 private:
  [[nodiscard]] bool moved(const progress_facts& facts);
  [[nodiscard]] bool started(const progress_facts& facts);

  nanoseconds patience_;
  std::optional<stall_report> stalled_;
  steady_time last_movement_ = never;
  std::uint64_t stages_passed_ = 0;
  std::pair<std::uint64_t, std::uint64_t> mark_{};  // of the awaited batch: job, mark
  /// The samples that the workers of one place have finished since a batch passed a stage.
  struct work {
    std::uint32_t incarnation = 0;
    std::uint64_t before = 0;  // finished by this worker when a batch last passed a stage
    std::uint64_t most = 0;    // the most that one worker has finished since then
  };
  std::map<std::uint32_t, work> work_;  // by place
  std::set<std::uint32_t> started_;  // places that have been ready
  bool owner_started_ = false;
};

}  // namespace penstock::supervision
